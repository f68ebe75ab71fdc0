#!/usr/bin/env python3
"""Writes one SMT-LIB 2 file per rule and width into a folder: each asserts a rule's negation, so `unsat`
proves the rule.

Rules of bits are written at 32 and 64 bits. Rules that multiply or divide two variables are decided over the
integers, which covers any width, and once more at 8 bits as machines compute them: z3 does not decide those
at 16 bits. Comments name the place of the rule.
"""
import os, sys

# The width of multiplications and divisions of two bit vectors, which are also proved over the integers.
NARROW = {"divide": 8, "remainder": 8, "multiply": 8, "quotient": 8}


def bits(w, n):
    return f"(_ bv{n % 2**w} {w})"


def rules(w):
    """Yields rules over w bits: place, name, variables, assumption, conclusion."""
    v = lambda n: bits(w, n)
    inside = "(assert (and (bvule al x) (bvule x ah) (bvule bl y) (bvule y bh)))"
    names = "x y al ah bl bh"
    zero, one, top = v(0), v(1), v(-1)
    # The least 2^n - 1 that is at least a: m is of that form, and half of it is below a.
    ones = lambda m, a: (f"(assert (and (= (bvand {m} (bvadd {m} {one})) {zero}) (bvule {a} {m}) "
                         f"(or (= {m} {zero}) (bvult (bvlshr {m} {one}) {a}))))")
    wide = lambda a: f"((_ zero_extend {w}) {a})"
    product = lambda a, b: f"(bvmul {wide(a)} {wide(b)})"
    half = v(1 << (w - 1))

    yield "rules::and", "and", names, inside, "(bvule (bvand x y) (ite (bvult ah bh) ah bh))"
    yield "rules::or", "or", names + " m", inside + ones("m", "(bvor ah bh)"), \
        "(and (bvule (bvor x y) m) (bvule al (bvor x y)) (bvule bl (bvor x y)))"
    yield "rules::xor", "xor", names + " m", inside + ones("m", "(bvor ah bh)"), "(bvule (bvxor x y) m)"
    yield "rules::ones", "ones", "x m n", ones("m", "x") + \
        f"(assert (and (= (bvand n (bvadd n {one})) {zero}) (bvule x n)))", "(bvule m n)"
    positive = f"(ite (= {{}} {zero}) {one} {{}})"
    yield "rules::divide", "divide", names, inside + f"(assert (not (= y {zero})))", \
        f"(and (bvule (bvudiv al {positive.format('bh', 'bh')}) (bvudiv x y)) " \
        f"(bvule (bvudiv x y) (bvudiv ah {positive.format('bl', 'bl')})))"
    yield "rules::remainder", "remainder", names, inside + f"(assert (not (= y {zero})))", \
        "(and (bvule (bvurem x y) ah) (bvult (bvurem x y) bh) (=> (bvult ah bl) (= (bvurem x y) x)))"
    yield "rules::shift_right", "shift_right", names, inside + f"(assert (bvult y {v(w)}))", \
        "(and (bvule (bvlshr al y) (bvlshr x y)) (bvule (bvlshr x y) (bvlshr ah y)))"
    yield "rules::shift_right_any", "shift_right_any", names, inside, f"(bvule (bvlshr x (bvurem y {v(w)})) ah)"
    yield "rules::multiply", "multiply", names, inside + f"(assert (bvule {product('ah', 'bh')} {wide(top)}))", \
        f"(and (bvule {product('al', 'bl')} {product('x', 'y')}) (bvule {product('x', 'y')} {product('ah', 'bh')}) " \
        f"(= {wide('(bvmul x y)')} {product('x', 'y')}))"
    bit = lambda n: f"((_ zero_extend {w - 1}) ((_ extract {n} {n}) x))"
    count = bit(0)
    for n in range(1, w):
        count = f"(bvadd {count} {bit(n)})"
    if w >= 32:
        yield "rules::count_bits", "count_bits", "x", "", f"(bvule {count} {v(w)})"
    for n in (8, 16, 32):
        if n < w:
            yield "rules::sign_extend", f"sign_extend_{n}", names, inside + f"(assert (bvult ah {v(1 << (n - 1))}))", \
                f"(= ((_ sign_extend {w - n}) ((_ extract {n - 1} 0) x)) x)"
    yield "rules::is_nonnegative", "is_nonnegative", names, inside, \
        f"(=> (bvult ah {half}) (bvsge x {zero}))"

    yield "ops: quotient", "quotient", "x y", f"(assert (not (= y {zero})))", \
        f"(let ((r (bvsub {wide('x')} {product('y', '(bvudiv x y)')}))) (bvult r {wide('y')}))"
    # x >> n, times 2^n (below), is at most x, by less than 2^n.
    yield "ops: shift_right", "shift_as_quotient", "x n", f"(assert (bvult n {v(w)}))", \
        f"(let ((q (bvshl (bvlshr x n) n))) (and (bvule q x) (bvult (bvsub x q) (bvshl {one} n))))"
    yield "ops: shift_left", "shift_left", "x n", f"(assert (bvult n {v(w)}))", f"(= (bvshl x n) (bvmul x (bvshl {one} n)))"
    yield "ops: less_signed, yes", "signed_left", "x y", f"(assert (and (bvult x {half}) (bvslt x y)))", \
        f"(and (bvult x y) (bvult y {half}))"
    yield "ops: less_signed, no", "signed_right", "x y", f"(assert (and (bvult y {half}) (bvsge x y)))", \
        f"(and (bvuge x y) (bvult x {half}))"
    yield "ops: less_signed, both", "signed_both", "x y", f"(assert (and (bvult x {half}) (bvult y {half})))", \
        "(= (bvslt x y) (bvult x y))"
    # p is a power of two above y that divides x.
    power = f"(assert (and (not (= p {zero})) (= (bvand p (bvsub p {one})) {zero})))"
    yield "ops: or", "or_as_sum", "x y p", power + f"(assert (and (bvult y p) (= (bvand x (bvsub p {one})) {zero})))", \
        "(= (bvor x y) (bvadd x y))"
    yield "ops: and", "low_mask", "x p", power + f"(assert (bvule x (bvsub p {one})))", f"(= (bvand x (bvsub p {one})) x)"
    # All bits that may be set in x but the n lowest: the quotient by 2^n, times 2^n.
    yield "ops: and", "high_mask", "x n all", \
        f"(assert (and (bvult n {v(w)}) (= (bvand all (bvadd all {one})) {zero}) (bvule x all)))", \
        f"(= (bvand x (bvand all (bvnot (bvsub (bvshl {one} n) {one})))) (bvshl (bvlshr x n) n))"
    # Values whose bits above the mask p - 1 are the same: without those, they are below p, and the mask, or
    # any part m of it, leaves the same of them.
    yield "ops: and", "common_bits", "x al ah p m", power + \
        f"(assert (and (bvule al x) (bvule x ah) (bvult m p) (= (bvand al (bvneg p)) (bvand ah (bvneg p)))))", \
        f"(let ((rest (bvsub x (bvand al (bvneg p))))) (and (bvult rest p) (bvule (bvand al (bvneg p)) x) " \
        f"(= (bvand x m) (bvand rest m))))"
    yield "ops: and, or of 0 and 1", "conditions", "x y", f"(assert (and (bvule x {one}) (bvule y {one})))", \
        f"(and (= (not (= (bvand x y) {zero})) (and (= x {one}) (= y {one}))) " \
        f"(= (= (bvor x y) {zero}) (and (= x {zero}) (= y {zero}))) (= (= (bvxor x {one}) {zero}) (= x {one})))"
    # x & (x - 1) is x without its lowest set bit, and only without that.
    yield "loops: Cleared", "cleared", "x", f"(assert (not (= x {zero})))", \
        f"(let ((c (bvand x (bvsub x {one})))) (and (= (bvand c x) c) (not (= c x)) " \
        f"(= (bvand (bvxor x c) (bvsub (bvxor x c) {one})) {zero})))"
    # Where 2 × y <= x as integers and x is not 0, y has a bit less: of the masks m above x, half of it is
    # above y.
    yield "loops: Halved", "halved", "x y m", \
        f"(assert (and (not (= x {zero})) (bvule (bvadd {wide('y')} {wide('y')}) {wide('x')})))" + ones("m", "x"), \
        f"(bvule y (bvlshr m {one}))"
    # A sum of fewer bits: the symbol may have any bits.
    if w > 8:
        n = w // 2
        low = lambda a: f"((_ extract {n - 1} 0) {a})"
        yield "value: wrapped", "wrapped", "c k s", "", \
            f"(= {low('(bvadd c (bvmul k s))')} (bvadd {low('c')} (bvmul {low('k')} {low('s')})))"
    # A common part, and the rest.
    yield "state: either", "common", "x c", "", "(= (bvadd c (bvsub x c)) x)"
    # Bytes p .. p + m and bytes p + d .. p + d + n are disjoint.
    yield "state: store", "apart", "p d m n i j", \
        f"(assert (and (bvule m {v(16)}) (bvule n {v(16)}) (bvuge d m) (bvule d (bvneg n)) (bvugt n {zero}) (bvult i m) (bvult j n)))", \
        "(not (= (bvadd p i) (bvadd p d j)))"


def integers():
    """Yields rules over the integers, of any width: place, name, variables, assumption, conclusion."""
    inside = "(<= 0 al x ah) (<= 0 bl y bh)"
    names = "x y al ah bl bh"
    yield "rules::multiply", "multiply", names + " top", f"(and {inside} (<= (* ah bh) top))", \
        "(and (<= (* al bl) (* x y)) (<= (* x y) (* ah bh)) (<= (* x y) top))"
    # A division stated by its quotient and remainder, which z3 does not do by itself.
    divided = lambda x, y, q: f"(<= 0 {q}) (<= (* {y} {q}) {x}) (< {x} (* {y} (+ {q} 1)))"
    yield "rules::divide, least", "divide_least", names + " p q", \
        f"(and {inside} (> y 0) {divided('x', 'y', 'q')} {divided('al', 'bh', 'p')})", "(<= p q)"
    yield "rules::divide, greatest", "divide_greatest", names + " p q m", \
        f"(and {inside} (> y 0) (= m (ite (= bl 0) 1 bl)) {divided('x', 'y', 'q')} {divided('ah', 'm', 'p')})", "(<= q p)"
    yield "rules::remainder", "remainder", names + " q", f"(and {inside} (> y 0) {divided('x', 'y', 'q')})", \
        "(let ((r (- x (* y q)))) (and (<= 0 r ah) (< r bh) (=> (< ah bl) (= r x))))"
    yield "ops: quotient", "quotient", "x y q", f"(and (> y 0) {divided('x', 'y', 'q')})", \
        "(<= 0 (- x (* y q)) (- y 1))"
    yield "ops: quotient, exact", "quotient_exact", "x y q g", f"(and (> y 0) (= x (* y g)) {divided('x', 'y', 'q')})", "(= q g)"
    for w in (32, 64):
        m = 2**w
        # A form f, congruent to the sum s, within 0 .. 2^bits is the sum; k is the multiple by which they
        # differ.
        yield "value: exact", f"exact_{w}", "f s k", \
            f"(and (= f (+ s (* {m} k))) (<= 0 s) (< s {m}) (<= 0 f) (< f {m}))", "(= f s)"
        yield "ops: equal, no", f"different_{w}", "x y k", \
            f"(and (<= 0 x) (< x {m}) (<= 0 y) (< y {m}) (not (= x y)))", f"(not (= (- x y) (* {m} k)))"
    yield "linear: eliminates", "eliminate", "goal fact p q", \
        "(and (> p 0) (>= q 0) (>= fact 0) (>= (- (+ (* p goal) (- p 1)) (* q fact)) 0))", "(>= goal 0)"
    yield "linear: tightened", "tighten", "x g c", "(and (> g 0) (>= (+ (* g x) c) 0))", "(>= (+ x (div c g)) 0)"
    # With c = g × q + r and n = x + q.
    yield "linear: relaxed", "relax", "n g r", "(and (> g 0) (<= 0 r) (< r g) (>= (+ (* g n) (- g 1)) 0))", "(>= (+ (* g n) r) 0)"
    yield "linear: refutes", "refute", "form", "(>= (- (- 1) form) 0)", "(< form 0)"
    yield "linear: search", "upper", "form fact p q most", \
        "(and (> p 0) (>= q 0) (>= fact 0) (<= (+ (* p form) (* q fact)) most))", "(<= (* p form) most)"
    yield "linear: most", "floor", "form d most", "(and (> d 0) (<= (* d form) most))", "(<= form (div most d))"
    yield "linear: least, greatest", "ends", "n s low high", "(<= low s high)", \
        "(and (=> (> n 0) (<= (* n low) (* n s) (* n high))) (=> (< n 0) (<= (* n high) (* n s) (* n low))))"
    yield "value: positive", "positive", "f g k", "(and (> g 0) (= f (* g k)) (>= f 0) (not (= f 0)))", "(>= f g)"
    yield "ops: less, yes", "less", "a b", "(< a b)", "(>= (- (- b a) 1) 0)"
    yield "ops: less, no", "not_less", "a b", "(not (< a b))", "(>= (- a b) 0)"
    yield "ops: equal, yes", "equal", "a b", "(= a b)", "(and (>= (- a b) 0) (>= (- b a) 0))"
    # A value that is a on one path and b on the other lies between the least and the greatest, and in each
    # relation in which both are.
    yield "state: choose", "join", "v a b la ha lb hb bound", \
        "(and (or (= v a) (= v b)) (<= la a ha) (<= lb b hb) (>= (- bound a) 0) (>= (- bound b) 0))", \
        "(and (<= (ite (< la lb) la lb) v (ite (> ha hb) ha hb)) (>= (- bound v) 0))"
    # t iterations take a back edge, each of cost at most one; then a last one ends or traps.
    yield "loops: trips", "trips", "t m k", "(and (> k 0) (>= t 0) (>= (- m (* k t)) 0))", "(<= t (div m k))"
    yield "loops: cost", "loop_cost", "t most one last all each end", \
        "(and (<= 0 t most) (<= 0 each one) (<= 0 end last) (<= all (+ (* t each) end)))", "(<= all (+ (* most one) last))"
    # Iterations that begin a packet each are at most as many as the packets.
    yield "loops: packets", "packet_cost", "t begun one all each", \
        "(and (<= 0 t begun) (<= 0 each one) (<= all (* t each)))", "(<= all (* begun one))"
    yield "loops: by count", "count_cost", "t count one all each", \
        "(and (>= (- count t) 0) (<= 0 t) (<= 0 each one) (<= all (* t each)))", "(<= all (* count one))"
    # A claim holds for 0 and, if for t, for t + 1: the least n for which it did not hold would have one
    # before it.
    yield "loops: induction", "induction", "n", \
        "(and (>= n 0) (claim 0) (forall ((t Int)) (=> (and (>= t 0) (claim t)) (claim (+ t 1)))) (not (claim n)) " \
        "(forall ((t Int)) (=> (and (>= t 0) (< t n)) (claim t))))", "false"
    # Coefficients are multiples of 1 / 256, rounded up; so are their products and quotients.
    yield "poly: from_upper", "poly_upper", "n d c x", "(and (> d 0) (>= n 0) (>= (* d c) (* 256 n)) (<= (* d x) n))", "(<= (* 256 x) c)"
    yield "poly: times", "poly_times", "a b x y c", \
        "(and (<= 0 (* 256 x) a) (<= 0 (* 256 y) b) (>= (* 256 c) (* a b)))", "(<= (* 256 x y) c)"
    # Descriptor i of n, 32 bytes each, and a field of it.
    yield "abi: is_descriptor", "descriptor", "i n at", "(and (>= i 0) (>= (- n i 1) 0) (<= 0 at 31))", \
        "(and (<= 0 (+ (* 32 i) at)) (< (+ (* 32 i) at) (* 32 n)))"


def main(folder):
    os.makedirs(folder, exist_ok=True)

    def write(name, where, logic, text):
        with open(os.path.join(folder, name + ".smt2"), "w") as f:
            f.write(f"; {where}\n(set-logic {logic})\n{text}(check-sat)\n")

    for w in (8, 16, 32, 64):
        for where, name, names, assumed, follows in rules(w):
            if w == NARROW[name] if name in NARROW else w >= 32:
                declared = "".join(f"(declare-const {n} (_ BitVec {w}))\n" for n in names.split())
                write(f"{name}_{w}", where, "QF_BV", declared + assumed + f"\n(assert (not {follows}))\n")
    for where, name, names, assumed, follows in integers():
        declared = "".join(f"(declare-const {n} Int)\n" for n in names.split())
        if "claim" in assumed:
            declared += "(declare-fun claim (Int) Bool)\n"
        write(f"{name}_integers" if not name[-1].isdigit() else name, where, "ALL",
            declared + f"(assert {assumed})\n(assert (not {follows}))\n")


main(sys.argv[1])
