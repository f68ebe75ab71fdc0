//! Frames that a module sends on its channels: those of kind [`CHANNEL`](flame_abi::output::CHANNEL).

use crate::error::Fault;
use flame_abi::output::{CHANNEL_HEAD, LEAST_SENT, MOST_SENT};

/// Splits the payload: number of the channel, and bytes of the frame.
pub(crate) fn channel(payload: &[u8]) -> Option<(u16, &[u8])> {
    let ([a, b, 0, 0], bytes) = payload.split_first_chunk::<CHANNEL_HEAD>()? else { return None };
    Some((u16::from_le_bytes([*a, *b]), bytes))
}

/// Checks the payload of a module with this many channels.
pub(crate) fn check_channel(payload: &[u8], channels: usize) -> Result<(), Fault> {
    let Some((found, bytes)) = channel(payload) else {
        return Err(Fault::ChannelHead { length: payload.len() });
    };
    if usize::from(found) >= channels {
        return Err(Fault::Channel { found, channels });
    }
    match (LEAST_SENT..=MOST_SENT).contains(&bytes.len()) {
        true => Ok(()),
        false => Err(Fault::SentLength { length: bytes.len() }),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Frame, Gate, Schema, frames};
    use flame_abi::manifest::Manifest;
    use flame_abi::output::CHANNEL;
    use flame_plan::{Release, Sending, Terms};
    use flame_quota::Meters;

    fn manifest(channels: usize) -> Manifest {
        let channel = |n| format!("[[channels]]\nname = \"c{n}\"\nfilter = \"icmp\"\nrate = \"1 Mbit/s\"\n");
        let channels: String = (0..channels).map(channel).collect();
        let text = format!("abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n{channels}");
        Manifest::parse(text.as_bytes()).unwrap()
    }

    fn frame(head: [u8; 4], bytes: usize) -> Vec<u8> {
        let length = ((4 + bytes) as u32).to_le_bytes();
        [&length[..], &CHANNEL.to_le_bytes(), &[0, 0], &head, &vec![7; bytes]].concat()
    }

    #[test]
    fn frames_are_of_a_channel_and_of_a_length_that_a_link_has() {
        let schema = Schema::new(&manifest(2));
        let output = [frame([1, 0, 0, 0], 14), frame([0, 0, 0, 0], 9216)].concat();
        assert_eq!(schema.check(&output, false).unwrap().on_channels, 2);
        let read: Vec<_> = frames(&output).collect();
        let sent = |channel, bytes| Frame::Channel { channel, bytes };
        assert_eq!(read, [sent(1, &[7; 14][..]), sent(0, &[7; 9216])]);
        for (bad, said) in [
            (frame([2, 0, 0, 0], 60), "channel 2, the manifest lists 2"),
            (frame([0, 1, 0, 0], 60), "channel 256"),
            (frame([0, 0, 1, 0], 60), "channel, 0; found 64 that do not"),
            (frame([0, 0, 0, 0], 13), "a frame of 13 bytes, a channel takes 14 to 9216"),
            (frame([0, 0, 0, 0], 9217), "a frame of 9217 bytes"),
            (frame([0, 0, 0, 0], 0), "a frame of 0 bytes"),
        ] {
            let error = schema.check(&bad, false).unwrap_err().to_string();
            assert!(error.contains(said), "{said}\n{error}");
        }
        let short = [&3_u32.to_le_bytes()[..], &CHANNEL.to_le_bytes(), &[0; 5]].concat();
        assert!(schema.check(&short, false).unwrap_err().to_string().contains("found 3 that do not"));
        let none = Schema::new(&manifest(0)).check(&frame([0; 4], 60), false).unwrap_err().to_string();
        assert!(none.contains("channel 0, the manifest lists 0 in [[channels]]"), "{none}");
    }

    /// A frame is of the bytes per second that the grant lets out, and there is no frame without the right.
    #[test]
    fn a_gate_lets_frames_out_within_the_grant() {
        let frame = Frame::Channel { channel: 0, bytes: &[0; 68] };
        let let_out = |sending: Sending, release: Release| {
            let terms = Terms { release, sending, ..Terms::default() };
            let mut gate = Gate::new(&manifest(1), &terms, &Meters::default());
            (0..100).filter(|_| gate.lets(&frame)).count()
        };
        let release = Release { transmit: 1000, ..Release::default() };
        assert_eq!(let_out(Sending::default(), release), 10, "68 bytes and 32 for each frame");
        assert_eq!(let_out(Sending { is_allowed: false, ..Sending::default() }, release), 0);
        assert_eq!(
            let_out(Sending::default(), Release { group: 2, ..release }),
            0,
            "it stands for no packets"
        );
        assert_eq!(let_out(Sending::default(), Release::default()), 100);
    }
}
