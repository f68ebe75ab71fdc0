use super::Scan;

pub(super) fn find(scan: &Scan, payload: &[u8], from: usize) -> usize {
    scan.slowly(payload, from)
}

/// As far as there is nothing: only modules' steps are counted.
#[inline]
pub(super) fn step(scan: &Scan, payload: &[u8], from: usize) -> (usize, bool) {
    (find(scan, payload, from) + 1, true)
}
