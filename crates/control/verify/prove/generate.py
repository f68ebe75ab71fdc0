#!/usr/bin/env python3
"""Writes one SMT-LIB 2 file a rule and width into the folder given: each asserts a rule's negation, so `unsat` proves the rule.

Rules whose multiplication or division by a variable z3 does not decide within 60 s at 64 bits are written at 16 bits (see
HARD); those by constants at 32 and 64.
"""
import os, sys

HARD = {"divide": (8,), "remainder": (8, 16), "multiply": (8, 16), "quotient": (8,)}


def bits(w, n):
    return f"(_ bv{n % 2**w} {w})"


def rules(w):
    v = lambda n: bits(w, n)
    inside = "(assert (and (bvule al x) (bvule x ah) (bvule bl y) (bvule y bh)))"
    names = "x y al ah bl bh"
    zero, one, top = v(0), v(1), v(-1)
    # The least 2^n - 1 that is at least a: m is of that form, and half of it is below a.
    ones = lambda m, a: (f"(assert (and (= (bvand {m} (bvadd {m} {one})) {zero}) (bvule {a} {m}) "
                         f"(or (= {m} {zero}) (bvult (bvlshr {m} {one}) {a}))))")
    yield "and", names, inside, "(bvule (bvand x y) (ite (bvult ah bh) ah bh))"
    yield "or", names + " m", inside + ones("m", "(bvor ah bh)"), \
        "(and (bvule (bvor x y) m) (bvule al (bvor x y)) (bvule bl (bvor x y)))"
    yield "xor", names + " m", inside + ones("m", "(bvor ah bh)"), "(bvule (bvxor x y) m)"
    positive = f"(ite (= {{}} {zero}) {one} {{}})"
    yield "divide", names, inside + f"(assert (not (= y {zero})))", \
        f"(and (bvule (bvudiv al {positive.format('bh', 'bh')}) (bvudiv x y)) " \
        f"(bvule (bvudiv x y) (bvudiv ah {positive.format('bl', 'bl')})))"
    yield "remainder", names, inside + f"(assert (not (= y {zero})))", \
        f"(and (bvule (bvurem x y) ah) (bvult (bvurem x y) bh) (=> (bvult ah bl) (= (bvurem x y) x)))"
    yield "shift_right", names, inside + f"(assert (bvult y {v(w)}))", \
        "(and (bvule (bvlshr al y) (bvlshr x y)) (bvule (bvlshr x y) (bvlshr ah y)))"
    yield "shift_right_any", names, inside, f"(bvule (bvlshr x (bvurem y {v(w)})) ah)"
    wide = lambda a: f"((_ zero_extend {w}) {a})"
    product = lambda a, b: f"(bvmul {wide(a)} {wide(b)})"
    yield "multiply", names, inside + f"(assert (bvule {product('ah', 'bh')} {wide(top)}))", \
        f"(and (bvule {product('al', 'bl')} {product('x', 'y')}) (bvule {product('x', 'y')} {product('ah', 'bh')}) " \
        f"(= {wide('(bvmul x y)')} {product('x', 'y')}))"
    for n in (8, 16, 32):
        if n < w:
            yield f"sign_extend_{n}", names, inside + f"(assert (bvult ah {v(1 << (n - 1))}))", \
                f"(= ((_ sign_extend {w - n}) ((_ extract {n - 1} 0) x)) x)"
    yield "quotient", "x y", f"(assert (not (= y {zero})))", \
        f"(let ((r (bvsub {wide('x')} {product('y', '(bvudiv x y)')}))) (bvult r {wide('y')}))"
    half = v(1 << (w - 1))
    yield "signed_left", "x y", f"(assert (and (bvult x {half}) (bvslt x y)))", f"(and (bvult x y) (bvult y {half}))"
    yield "signed_right", "x y", f"(assert (and (bvult y {half}) (bvsge x y)))", f"(and (bvuge x y) (bvult x {half}))"
    yield "signed_both", "x y", f"(assert (and (bvult x {half}) (bvult y {half})))", "(= (bvslt x y) (bvult x y))"
    # p is a power of two above y that divides x.
    power = f"(assert (and (not (= p {zero})) (= (bvand p (bvsub p {one})) {zero})))"
    yield "or_as_sum", "x y p", power + f"(assert (and (bvult y p) (= (bvand x (bvsub p {one})) {zero})))", \
        "(= (bvor x y) (bvadd x y))"
    yield "low_mask", "x p", power + f"(assert (bvule x (bvsub p {one})))", f"(= (bvand x (bvsub p {one})) x)"
    # The quotient by 2^n, times 2^n.
    yield "high_mask", "x n", f"(assert (bvult n {v(w)}))", \
        f"(= (bvand x (bvnot (bvsub (bvshl {one} n) {one}))) (bvshl (bvlshr x n) n))"
    # x & (x - 1): a part of x without its lowest set bit, and only that.
    yield "cleared", "x", f"(assert (not (= x {zero})))", \
        f"(let ((c (bvand x (bvsub x {one})))) (and (= (bvand c x) c) (not (= c x)) " \
        f"(= (bvand (bvxor x c) (bvsub (bvxor x c) {one})) {zero})))"
    # Where 2 × y <= x as integers and x is not 0, y has a bit less: of the masks m above x, half of it is above y.
    yield "halved", "x y m", \
        f"(assert (and (not (= x {zero})) (bvule (bvadd {wide('y')} {wide('y')}) {wide('x')})))" + ones("m", "x"), \
        f"(bvule y (bvlshr m {one}))"


def integers():
    """Rules over the integers, of any width: name, variables, what is assumed, what follows."""
    for w in (32, 64):
        m = 2**w
        # A form f, congruent to the sum s, within 0 .. 2^bits is the sum; k is the multiple by which they differ.
        yield f"exact_{w}", "f s k", f"(and (= f (+ s (* {m} k))) (<= 0 s) (< s {m}) (<= 0 f) (< f {m}))", "(= f s)"
        yield f"different_{w}", "x y k", f"(and (<= 0 x) (< x {m}) (<= 0 y) (< y {m}) (not (= x y)))", \
            f"(not (= (- x y) (* {m} k)))"
    yield "eliminate", "goal fact p q", "(and (> p 0) (>= q 0) (>= fact 0) (>= (- (* p goal) (* q fact)) 0))", \
        "(>= goal 0)"
    yield "upper", "form fact p q most", \
        "(and (> p 0) (>= q 0) (>= fact 0) (<= (+ (* p form) (* q fact)) most))", "(<= (* p form) most)"
    yield "floor", "form d most", "(and (> d 0) (<= (* d form) most))", "(<= form (div most d))"
    yield "positive", "f g k", "(and (> g 0) (= f (* g k)) (>= f 0) (not (= f 0)))", "(>= f g)"
    yield "less", "a b", "(< a b)", "(>= (- (- b a) 1) 0)"
    yield "not_less", "a b", "(not (< a b))", "(>= (- a b) 0)"


def main(folder):
    os.makedirs(folder, exist_ok=True)

    def write(name, logic, text):
        with open(os.path.join(folder, name + ".smt2"), "w") as f:
            f.write(f"(set-logic {logic})\n{text}(check-sat)\n")

    for w in (8, 16, 32, 64):
        for name, names, assumed, follows in rules(w):
            if w in HARD.get(name, (32, 64)):
                declared = "".join(f"(declare-const {n} (_ BitVec {w}))\n" for n in names.split())
                write(f"{name}_{w}", "QF_BV", declared + assumed + f"\n(assert (not {follows}))\n")
    for name, names, assumed, follows in integers():
        declared = "".join(f"(declare-const {n} Int)\n" for n in names.split())
        write(name, "ALL", declared + f"(assert {assumed})\n(assert (not {follows}))\n")


main(sys.argv[1])
