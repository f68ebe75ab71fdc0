//! Frames that the kernel left unfinished: those that are handed over have right lengths, and no byte of
//! payload is lost.
#![no_main]

use flame_source::live::Unfinished;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((statement, frame)) = data.split_first_chunk() else { return };
    let (mut count, mut longest, mut total) = (0, 0, 0);
    let finished = Unfinished::read(*statement).finish(frame, &mut Vec::new(), &mut |front, rest| {
        count += 1;
        longest = longest.max(front.len() + rest.len());
        total += front.len() + rest.len();
    });
    match finished {
        Ok(()) => assert!(count > 0 && longest <= frame.len() && total >= frame.len()),
        Err(_) => assert_eq!(count, 0),
    }
});
