use super::Scan;

pub(super) fn find(scan: &Scan, payload: &[u8], from: usize) -> usize {
    scan.slowly(payload, from)
}
