//! Modified certificates: each is refused with rule and place, or gives bounds that no execution exceeds.

use crate::modules::{Sample, exceeded, samples};
use flame_verify::{
    Certificate, Form, LoopNote, Measure, Notes, Reference, Rule, Verified, VerifyError, verify,
};
use std::time::{Duration, Instant};

/// Verifies a modified certificate and returns whether it was refused.
fn check(sample: &Sample, wasm: &[u8], certificate: &[u8], what: &dyn Fn() -> String) -> bool {
    let start = Instant::now();
    let verified = verify(wasm, certificate);
    assert!(start.elapsed() < Duration::from_secs(5), "{}: {:?}", what(), start.elapsed());
    let verified = match verified {
        Ok(verified) => verified,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("at byte") || text.contains("function"), "{}: {text}", what());
            return true;
        }
    };
    assert_eq!(exceeded(sample, &verified), None, "{}", what());
    let mut refused = false;
    for entry in &verified.entries {
        match entry.bound {
            Ok(_) => {}
            Err(why) => {
                refused = true;
                let place = format!("(function {}, at byte {})", why.function, why.offset);
                assert!(why.to_string().ends_with(&place), "{why}");
                let whole = matches!(why.rule, Rule::TooDeep | Rule::NoBound | Rule::Work);
                assert!(whole || why.offset > 0, "{}: {why}", what());
            }
        }
    }
    refused
}

fn verified(sample: &Sample, certificate: &Certificate) -> Result<Verified, VerifyError> {
    verify(&sample.wasm(), &certificate.to_bytes())
}

#[test]
fn honest_certificates_give_the_bounds_that_are_expected() {
    for sample in samples() {
        let verified = verified(&sample, &sample.certificate).unwrap();
        let bounds: Vec<String> = verified
            .entries
            .iter()
            .map(|entry| {
                let cost = entry.bound.unwrap_or_else(|why| panic!("{}: {why}", entry.name));
                let call = cost.call.to_string();
                if cost.of_packet() == flame_verify::Poly::ZERO {
                    call
                } else {
                    format!("{call} + packets × ({})", cost.of_packet())
                }
            })
            .collect();
        assert_eq!(bounds, sample.bounds);
        assert_eq!(Certificate::from_bytes(&sample.certificate.to_bytes()).unwrap(), sample.certificate);
    }
}

#[test]
fn bytes_that_were_changed_give_no_bound_that_is_too_low() {
    let all = samples();
    for (n, sample) in all.iter().enumerate() {
        let (wasm, bytes) = (sample.wasm(), sample.certificate.to_bytes());
        let (mut refused, mut tried) = (0, 0);
        let mut one = |changed: &[u8], what: &dyn Fn() -> String| {
            tried += 1;
            refused += u32::from(check(sample, &wasm, changed, what));
        };
        for at in 0..bytes.len() {
            assert!(verify(&wasm, &bytes[..at]).is_err(), "cut off at {at}");
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                one(&changed, &|| format!("byte {at} is {value}"));
                changed = bytes.clone();
                changed.insert(at, value);
                one(&changed, &|| format!("{value} before byte {at}"));
            }
            for other in at..bytes.len() {
                let mut changed = bytes.clone();
                changed.swap(at, other);
                one(&changed, &|| format!("bytes {at} and {other}"));
                changed = bytes.clone();
                changed.drain(at..other);
                one(&changed, &|| format!("without {at}..{other}"));
                let doubled = [&bytes[..other], &bytes[at..]].concat();
                one(&doubled, &|| format!("{at}..{other} twice"));
            }
            // A length of about four billion.
            let huge = [&bytes[..at], &[0xff, 0xff, 0xff, 0xff, 0x0f], &bytes[at + 1..]].concat();
            one(&huge, &|| format!("byte {at} is huge"));
        }
        assert!(verify(&wasm, &[&bytes[..], &[0]].concat()).is_err(), "a byte more");
        // The certificate of another module.
        let other = &all[(n + 1) % all.len()].certificate;
        one(&other.to_bytes(), &|| "of another module".into());
        assert!(refused * 2 > tried, "{refused} of {tried} refused");
    }
}

/// Calls `f` for each list of loops, at any depth.
fn each_note(notes: &mut Notes, f: &mut dyn FnMut(&mut LoopNote)) {
    notes.loops.values_mut().for_each(&mut *f);
    notes.calls.values_mut().for_each(|inner| each_note(inner, f));
}

fn each(certificate: &mut Certificate, f: &mut dyn FnMut(&mut LoopNote)) {
    certificate.summaries.iter_mut().for_each(|(_, notes)| each_note(notes, f));
    certificate.entries.values_mut().for_each(|notes| each_note(notes, f));
}

/// Modifies the n-th note and nothing else.
fn changed(sample: &Sample, n: usize, change: &dyn Fn(&mut LoopNote)) -> Option<Certificate> {
    let mut certificate = sample.certificate.clone();
    let mut at = 0;
    each(&mut certificate, &mut |note| {
        if at == n {
            change(note);
        }
        at += 1;
    });
    (at > n).then_some(certificate)
}

type Change = Box<dyn Fn(&mut LoopNote)>;

fn set(note: &mut LoopNote, local: u32, form: Form) {
    note.forms.insert(local, form);
}

#[test]
fn claims_that_were_changed_give_no_bound_that_is_too_low() {
    let locals = 0..7;
    let mut changes: Vec<Change> = Vec::new();
    for by in [-1_000_000, -100, -3, -2, -1, 1, 2, 3, 100, i64::MAX, i64::MIN] {
        for at in 0..2 {
            changes.push(Box::new(move |note| {
                note.facts.get_mut(at).into_iter().for_each(|f| f.constant = f.constant.wrapping_add(by));
            }));
            for term in 0..2 {
                changes.push(Box::new(move |note| {
                    let term = note.facts.get_mut(at).and_then(|f| f.terms.get_mut(term));
                    term.into_iter().for_each(|t| t.0 = t.0.wrapping_add(by));
                }));
            }
        }
        for local in locals.clone() {
            changes.push(Box::new(move |note| set(note, local, Form::Step(by))));
            changes.push(Box::new(move |note| set(note, local, Form::Range(0, by as u64))));
            changes.push(Box::new(move |note| set(note, local, Form::Range(by as u64, 1_000_000))));
        }
    }
    for local in locals {
        changes.push(Box::new(move |note| note.forms.retain(|l, _| *l != local)));
        changes.push(Box::new(move |note| note.measure = Some(Measure::Halved(local))));
        changes.push(Box::new(move |note| note.measure = Some(Measure::Cleared(local))));
        for reference in [
            Reference::Head(local),
            Reference::Term(local, 0),
            Reference::Trip,
            Reference::Length,
            Reference::Count,
        ] {
            for (constant, by) in [(0, -1), (0, 1), (1, -1), (100, -1), (-1, 1)] {
                let fact = crate::modules::fact(constant, &[(by, reference)]);
                let related = crate::modules::fact(constant, &[(by, reference), (-1, Reference::Trip)]);
                changes.push(Box::new(move |note| note.facts.push(related.clone())));
                changes.push(Box::new(move |note| note.facts.push(fact.clone())));
            }
        }
    }
    changes.push(Box::new(|note| note.packets = !note.packets));
    changes.push(Box::new(|note| note.facts.clear()));
    changes.push(Box::new(|note| note.facts.reverse()));
    changes.push(Box::new(|note| note.facts.extend(note.facts.clone())));
    changes.push(Box::new(|note| *note = LoopNote::default()));
    for sample in samples() {
        let wasm = sample.wasm();
        let (mut refused, mut accepted) = (0, 0);
        for (number, change) in changes.iter().enumerate() {
            for n in 0.. {
                let Some(certificate) = changed(&sample, n, &**change) else { break };
                let what = || format!("change {number} of note {n}: {certificate:?}");
                match check(&sample, &wasm, &certificate.to_bytes(), &what) {
                    true => refused += 1,
                    false => accepted += 1,
                }
            }
        }
        assert!(refused > 500 && accepted > 200, "{refused} refused, {accepted} accepted");
    }
}

/// A refusal names the rule and the place: the loop, in its function.
#[test]
fn refusals_name_rule_and_place() {
    let all = samples();
    let refusal = |sample: &Sample, entry: usize, n: usize, change: &dyn Fn(&mut LoopNote)| {
        let certificate = changed(sample, n, change).expect("a note");
        verified(sample, &certificate).unwrap().entries[entry].bound.unwrap_err()
    };
    let place = |wasm: &[u8], function: u32, nth: usize| {
        let mut offsets = Vec::new();
        for (at, body) in bodies(wasm).into_iter().enumerate() {
            for item in body.get_operators_reader().unwrap().into_iter_with_offsets() {
                let (operator, offset) = item.unwrap();
                if matches!(operator, wasmparser::Operator::Loop { .. }) {
                    offsets.push((at as u32 + 1, offset as u32));
                }
            }
        }
        offsets.into_iter().filter(|(f, _)| *f == function).nth(nth).unwrap().1
    };
    let [packets, calls] = &all[..] else { panic!() };
    let (batch, of_calls) = (packets.wasm(), calls.wasm());
    let expect = |found: flame_verify::Refused, rule: Rule, function: u32, offset: u32| {
        assert_eq!((found.rule, found.function, found.offset), (rule, function, offset), "{found}");
    };
    // The second loop: one iteration fewer than there are; a fact that does not hold before it.
    let less = refusal(packets, 0, 1, &|note| note.facts[0].constant = -1);
    expect(less, Rule::FactBefore(0), 1, place(&batch, 1, 1));
    let twice = refusal(packets, 0, 1, &|note| note.facts[0].terms[1].0 = -2);
    expect(twice, Rule::FactBack(0), 1, place(&batch, 1, 1));
    let step = refusal(packets, 0, 1, &|note| set(note, 5, Form::Step(2)));
    expect(step, Rule::Form(5), 1, place(&batch, 1, 1));
    let no_packet = refusal(packets, 0, 1, &|note| note.packets = true);
    expect(no_packet, Rule::Packets, 1, place(&batch, 1, 1));
    let range = refusal(packets, 1, 2, &|note| set(note, 2, Form::Range(1, 100)));
    expect(range, Rule::Form(2), 2, place(&batch, 2, 0));
    let none = refusal(packets, 0, 0, &|note| note.packets = false);
    expect(none, Rule::NoBound, 1, place(&batch, 1, 0));
    // In a function that is analysed for any arguments, its own fault is named, not the call.
    let measure = refusal(calls, 0, 0, &|note| note.measure = Some(Measure::Cleared(0)));
    expect(measure, Rule::Measure, 1, place(&of_calls, 1, 0));
    let trips = refusal(calls, 0, 1, &|note| note.facts[0].constant = 98);
    expect(trips, Rule::FactBack(0), 3, place(&of_calls, 3, 0));
    // In a call that is analysed with its arguments.
    let inlined = refusal(calls, 0, 2, &|note| note.facts[0].constant = -1);
    expect(inlined, Rule::FactBefore(0), 2, place(&of_calls, 2, 0));
    // For a function without a note, the call is named.
    let mut certificate = calls.certificate.clone();
    certificate.summaries.clear();
    let left_out = verified(calls, &certificate).unwrap().entries[0].bound.unwrap_err();
    assert_eq!((left_out.rule, left_out.function), (Rule::Unsummarised(1), 3));
    assert!(left_out.offset > place(&of_calls, 3, 0));
    // The place in bytes that cannot be parsed.
    let error = verify(&batch, &[1, 0, 0, 1, 1, 1, 0, 6]).unwrap_err().to_string();
    assert_eq!(error, "reading the certificate: an unknown kind of note (at byte 7 of the certificate)");
    let error = verify(&batch, &[2]).unwrap_err().to_string();
    assert_eq!(
        error,
        "reading the certificate: another version of the format (at byte 0 of the certificate)"
    );
    let error = verify(&batch, &[1, 0, 1, 9, 0]).unwrap_err().to_string();
    assert_eq!(error, "the certificate is about function 9, which the module does not define");
}

fn bodies(wasm: &[u8]) -> Vec<wasmparser::FunctionBody<'_>> {
    let all = wasmparser::Parser::new(0).parse_all(wasm);
    all.filter_map(|payload| match payload.unwrap() {
        wasmparser::Payload::CodeSectionEntry(body) => Some(body),
        _ => None,
    })
    .collect()
}
