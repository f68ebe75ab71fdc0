//! `threshold` and `detection_filter`: limits on how often a matching rule alerts.

use super::fault::{Wrong, wrong};
use super::text::Piece;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first `count` events of each period alert.
    Limit,
    /// Every `count`-th event alerts.
    Threshold,
    /// The `count`-th event of each period alerts, once.
    Both,
    /// All events after the first `count` of a period alert.
    Detection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    Source,
    Destination,
    /// Source and destination, in either order.
    Both,
    Rule,
    /// The connection.
    Flow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub kind: Kind,
    pub track: Track,
    pub count: u32,
    pub seconds: u32,
}

/// Parses `type T, track by_src, count N, seconds N`; a `detection_filter` has no type.
///
/// # Errors
///
/// Returns an error with its offset if a part is missing, unknown or not valid. The inner error is the reason
/// why a valid limit is not supported.
#[inline(never)]
pub fn read(piece: Piece<'_>, detection: bool) -> Result<Result<Rate, String>, Wrong> {
    let (mut kind, mut track, mut count, mut seconds) =
        (detection.then_some(Kind::Detection), None, None, None);
    for part in piece.parts(',') {
        let (name, value) = part.word(&[]);
        let value = value.trim();
        let again = match name.text {
            "type" if !detection => kind
                .replace(match value.text {
                    "limit" => Kind::Limit,
                    "threshold" => Kind::Threshold,
                    "both" => Kind::Both,
                    "backoff" => return Ok(Err("threshold of type backoff".to_owned())),
                    _ => return wrong(value.at, "limit, threshold or both"),
                })
                .is_some(),
            "track" => track
                .replace(match value.text {
                    "by_src" => Track::Source,
                    "by_dst" => Track::Destination,
                    "by_both" => Track::Both,
                    "by_rule" => Track::Rule,
                    "by_flow" => Track::Flow,
                    _ => return wrong(value.at, "by_src, by_dst, by_both, by_rule or by_flow"),
                })
                .is_some(),
            "count" => count.replace(value.number(1, i64::from(u32::MAX))? as u32).is_some(),
            "seconds" => seconds.replace(value.number(1, i64::from(u32::MAX))? as u32).is_some(),
            "unique_on" if detection => return Ok(Err("detection_filter with unique_on".to_owned())),
            _ if detection => return wrong(name.at, "track, count or seconds"),
            _ => return wrong(name.at, "type, track, count or seconds"),
        };
        if again {
            return wrong(name.at, format!("{} once", name.text));
        }
    }
    let (Some(kind), Some(track), Some(count), Some(seconds)) = (kind, track, count, seconds) else {
        return wrong(
            piece.at,
            if detection { "track, count and seconds" } else { "type, track, count and seconds" },
        );
    };
    Ok(Ok(Rate { kind, track, count, seconds }))
}
