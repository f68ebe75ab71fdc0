//! A message with records of any bytes: if it can be read, it is written as the same bytes, is taken once,
//! and moves the archive's watermark by its rows and no others.
#![no_main]

use flame_fleet_protocol::{Mark, Message, Progress, Subject, Verdict, Writer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(mark) = Mark::read(data) {
        assert_eq!(Mark::read(&mark.to_bytes()), Ok(mark));
    }
    let Ok(message) = Message::read(data) else { return };
    let mut again = Vec::new();
    message.write(&mut again);
    assert_eq!(again, data);
    let mut progress = Progress::default();
    let first = progress.take(&message);
    if matches!(first, Verdict::Taken { .. }) {
        assert_eq!(progress.take(&message), Verdict::Repeated);
        let header = &message.frame.header;
        let known = progress.epochs.iter().find(|known| known.epoch == header.position.epoch);
        let known = known.expect("an epoch that was taken is known");
        assert_eq!((known.sequence, known.totals), (header.position.sequence, header.after()));
    }
    let subject = Subject::new("n", "p", "m", "t").expect("these names are short");
    let mut writer = Writer::default();
    writer.offer(&subject, &message);
    writer.commit();
    let mark = writer.mark(&subject);
    writer.publish(&subject, &mark);
});
