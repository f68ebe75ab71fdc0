//! Faults that a simulation must find: each breaks one rule of the protocols in one place.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The spool is cut at the log's acknowledgement, not at the archive's.
    TheLogsWordCuts,
    /// An opening of a spool continues the epoch.
    AnOpeningContinuesTheEpoch,
    /// The publisher does not send again what the log refused.
    ARefusalIsPassedOver,
    /// A writer begins without the watermark of the archive.
    AWriterForgetsItsWatermark,
    /// A commit is stored although another one has its version.
    TwoWritersBothCommit,
    /// A batch is taken although earlier ones are still in the spool.
    GapsAreTaken,
    /// A message names its own epoch only.
    EarlierEpochsAreIgnored,
    /// Messages are removed from the log before they are archived.
    MessagesAreRemovedBeforeTheCommit,
    /// The archive does not say that it misses a batch.
    NothingIsMissed,
    /// A writer removes messages although a mark says that another one has archived more.
    AWriterBehindGoesOn,
    /// A writer does not take over which batches the one before passed over.
    GapsAreForgotten,
    /// Batches are sent before they are on the disk.
    WhatIsNotSyncedIsSent,
    /// The spool states that it keeps batches that it dropped.
    DropsAreNotSaid,
    /// A node takes any signature for valid.
    SignaturesAreNotVerified,
    /// A node does not remember which intents it has followed.
    ReplaysAreFollowed,
    /// A node asks for contact with a number that it has used before.
    NodesAskWithTheSameNumber,
    /// A lease counts from the arrival of a beacon.
    LeasesBeginWithTheArrival,
    /// A node forgets the fleet's time at a start.
    TheTimeIsForgotten,
    /// A node forgets what is revoked at a start.
    RevocationsAreForgotten,
    /// A node runs modules before it has the list that a beacon states.
    TheBeaconsListIsNotAwaited,
    /// A node acts on what is not on its disk.
    WhatIsNotStoredIsActedOn,
    /// An intent reaches all nodes at once.
    WavesReachAll,
    /// A failure counts as a success.
    FailuresAreNotCounted,
    /// The list after the loss of a key does not end its delegation.
    ALostKeyIsNotEnded,
}

impl Broken {
    pub const OF_RECORDS: [Self; 13] = [
        Self::TheLogsWordCuts,
        Self::AnOpeningContinuesTheEpoch,
        Self::ARefusalIsPassedOver,
        Self::AWriterForgetsItsWatermark,
        Self::TwoWritersBothCommit,
        Self::GapsAreTaken,
        Self::EarlierEpochsAreIgnored,
        Self::MessagesAreRemovedBeforeTheCommit,
        Self::NothingIsMissed,
        Self::AWriterBehindGoesOn,
        Self::GapsAreForgotten,
        Self::WhatIsNotSyncedIsSent,
        Self::DropsAreNotSaid,
    ];

    pub const OF_CONTROL: [Self; 11] = [
        Self::SignaturesAreNotVerified,
        Self::ReplaysAreFollowed,
        Self::NodesAskWithTheSameNumber,
        Self::LeasesBeginWithTheArrival,
        Self::TheTimeIsForgotten,
        Self::RevocationsAreForgotten,
        Self::TheBeaconsListIsNotAwaited,
        Self::WhatIsNotStoredIsActedOn,
        Self::WavesReachAll,
        Self::FailuresAreNotCounted,
        Self::ALostKeyIsNotEnded,
    ];
}
