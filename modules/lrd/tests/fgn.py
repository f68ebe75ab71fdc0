"""Fractional Gaussian noise of known H by circulant embedding (Davies and Harte, Biometrika 74(1), 1987).

usage: fgn.py H LENGTH SERIES SEED > little-endian f64, one series after the other, of mean 0 and variance 1
"""

import sys

import numpy as np


def fgn(hurst, length, rng):
    lag = np.arange(length + 1, dtype=float)
    covariance = 0.5 * ((lag + 1) ** (2 * hurst) - 2 * lag ** (2 * hurst) + np.abs(lag - 1) ** (2 * hurst))
    eigen = np.fft.rfft(np.concatenate([covariance, covariance[-2:0:-1]])).real
    assert eigen.min() > -1e-9
    size = 2 * length
    noise = rng.standard_normal(length + 1) + 1j * rng.standard_normal(length + 1)
    noise[0] = noise[0].real * np.sqrt(2)
    noise[-1] = noise[-1].real * np.sqrt(2)
    spectrum = np.sqrt(np.maximum(eigen, 0) * size / 2) * noise
    return np.fft.irfft(spectrum, size)[:length]


if __name__ == "__main__":
    hurst, length, series, seed = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rng = np.random.default_rng(seed)
    for _ in range(series):
        sys.stdout.buffer.write(fgn(hurst, length, rng).astype("<f8").tobytes())
