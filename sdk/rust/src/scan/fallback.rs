use super::Scan;

pub(super) fn find(scan: &Scan, payload: &[u8], from: usize) -> usize {
    scan.slowly(payload, from)
}

pub(super) fn places(scan: &Scan, payload: &[u8], from: usize) -> Option<u32> {
    scan.places_slowly(payload, from)
}
