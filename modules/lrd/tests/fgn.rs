//! Fractional Gaussian noise of known H, made by `fgn.py` (Davies and Harte): the estimate is right, and its
//! 95 % interval is one. `FLAME_PYTHON` names a Python with numpy.

use flame_lrd::pyramid::{Pyramid, Wavelet};
use flame_lrd::regress::{Line, diagram, line};
use std::path::Path;
use std::process::Command;

const LENGTH: usize = 1 << 16;
const SERIES: usize = 100;

/// Series of `fgn.py`, or nothing after saying that the test is skipped.
fn noise(hurst: f64) -> Option<Vec<f64>> {
    let Some(python) = std::env::var_os("FLAME_PYTHON") else {
        println!("skipped: FLAME_PYTHON names no Python with numpy");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fgn.py");
    let seed = (hurst * 1000.0) as u32;
    let arguments = [hurst.to_string(), LENGTH.to_string(), SERIES.to_string(), seed.to_string()];
    let out = Command::new(python).arg(script).args(arguments).output().expect("FLAME_PYTHON runs");
    let error = String::from_utf8_lossy(&out.stderr);
    if error.contains("No module named 'numpy'") {
        println!("skipped: the Python that FLAME_PYTHON names has no numpy");
        return None;
    }
    assert!(out.status.success(), "{error}");
    Some(out.stdout.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect())
}

fn estimate(series: &[f64], moments: usize) -> Line {
    let wavelet = Wavelet::daubechies(moments);
    let mut pyramid = Pyramid::new(wavelet);
    series.iter().for_each(|x| pyramid.push(*x));
    line(&diagram(pyramid.energies()), wavelet.first_straight()).expect("65536 samples have octaves enough")
}

/// Checks the estimates for series of one H.
fn check(hurst: f64) {
    let Some(noise) = noise(hurst) else { return };
    assert_eq!(noise.len(), LENGTH * SERIES);
    for moments in 1..=4 {
        let found: Vec<_> = noise.chunks_exact(LENGTH).map(|s| estimate(s, moments).hurst()).collect();
        let bias = found.iter().map(|(h, ..)| h - hurst).sum::<f64>() / SERIES as f64;
        let covered = found.iter().filter(|(_, low, high)| (*low..=*high).contains(&hurst)).count();
        let width = found.iter().map(|(_, low, high)| high - low).sum::<f64>() / SERIES as f64;
        println!("H {hurst} D{}: bias {bias:+.4}, covered {covered} %, width {width:.3}", 2 * moments);
        assert!(bias.abs() < 0.02, "H {hurst} D{}: bias {bias}", 2 * moments);
        assert!(covered >= 90, "H {hurst} D{}: covered {covered} %", 2 * moments);
        assert!(width < 0.06, "H {hurst} D{}: intervals of {width} say little", 2 * moments);
    }
}

#[test]
fn bias_and_coverage() {
    std::thread::scope(|scope| {
        for hurst in [0.5, 0.6, 0.7, 0.8, 0.9, 0.95] {
            scope.spawn(move || check(hurst));
        }
    });
}
