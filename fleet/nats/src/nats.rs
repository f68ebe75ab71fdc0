//! NATS JetStream as a log.

use crate::{Access, Log, LogError, Published, Record, Version};
use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::{CreateStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::{Config, DirectGetErrorKind, DiscardPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use flame_fleet_protocol::Subject;
use flame_fleet_protocol::subject::unescape;
use flame_fleet_protocol::talk::{self, Ask};
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::fmt::Display;
use std::sync::atomic::Ordering;
use tokio::runtime::{Builder, Runtime};

/// The stream of the marks of all subjects.
const MARKS: &str = "MARKS";

/// A connection to a server. It is made again by itself, maybe to another server.
pub struct Nats {
    runtime: Runtime,
    client: Client,
    context: Context,
    /// The subject on which a node asks the fleet for streams. Nothing else lets it make them.
    asks: Option<String>,
}

fn failed<E: Display>(what: &'static str) -> impl FnOnce(E) -> LogError {
    move |error| LogError::Failed { what, reason: error.to_string() }
}

impl Nats {
    /// Connects to a server, and refuses versions with known holes.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no server, or its version is refused.
    pub fn connect(address: &str) -> Result<Self, LogError> {
        Self::connect_as(&Access::open(address))
    }

    /// Connects as a user.
    ///
    /// # Errors
    ///
    /// See [`Nats::connect`].
    pub fn connect_as(access: &Access) -> Result<Self, LogError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(failed("its runtime"))?;
        let client =
            runtime.block_on(access.options().connect(&access.server)).map_err(failed("the connection"))?;
        let context = runtime.block_on(async { jetstream::new(client.clone()) });
        let log = Self { runtime, client, context, asks: access.asks() };
        log.version()?;
        Ok(log)
    }

    /// Returns the version of the server that it is connected to now.
    ///
    /// # Errors
    ///
    /// Returns an error if it is refused.
    pub fn version(&self) -> Result<Version, LogError> {
        Ok(Version::accepted(&self.client.server_info().version)?)
    }

    /// Returns how often a connection was made. A log behind a new one may lack what the one before had.
    pub fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    /// Returns the principals that have a stream.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer.
    pub fn principals(&self) -> Result<Vec<String>, LogError> {
        let names = self.runtime.block_on(self.context()?.stream_names().try_collect::<Vec<_>>());
        let names = names.map_err(failed("its streams"))?;
        let principal = |name: &String| unescape(name.strip_prefix("REC_")?).ok();
        Ok(names.iter().filter_map(principal).collect())
    }

    /// Returns the way to the streams, if the server is accepted.
    fn context(&self) -> Result<&Context, LogError> {
        self.version().map(|_| &self.context)
    }

    fn stream(&self, name: &str) -> Result<Stream, LogError> {
        self.runtime.block_on(self.context()?.get_stream(name)).map_err(failed("a stream"))
    }

    fn last_of(&self, stream: &str, subject: &str) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        let stream = self.runtime.block_on(self.context()?.get_stream_no_info(stream));
        let stream = stream.map_err(failed("a stream"))?;
        match self.runtime.block_on(stream.direct_get_last_for_subject(subject)) {
            Ok(message) => Ok(Some((message.sequence, message.payload.to_vec()))),
            Err(e) if matches!(e.kind(), DirectGetErrorKind::NotFound) => Ok(None),
            Err(e) => Err(failed("the last message")(e)),
        }
    }
}

/// Returns the server's answer to a message.
fn published(outcome: Result<PublishAck, PublishError>) -> Result<Published, LogError> {
    let error = match outcome {
        Ok(ack) => return Ok(Published::Taken(ack.sequence)),
        Err(error) => error,
    };
    let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<jetstream::Error>());
    match (error.kind(), source.map(jetstream::Error::error_code)) {
        (PublishErrorKind::WrongLastSequence, _) => Ok(Published::Moved),
        (_, Some(ErrorCode::STREAM_STORE_FAILED)) => Ok(Published::Full),
        _ => Err(failed("a message")(error)),
    }
}

impl Log for Nats {
    fn open(&mut self, subject: &Subject, bound: u64) -> Result<(), LogError> {
        let principal = subject.as_str().split('.').nth(3).unwrap_or_default();
        if let Some(asks) = &self.asks {
            let ask = Ask::Stream { principal: subject.parts().principal, bytes: bound };
            let request = self.client.request(asks.clone(), ask.to_bytes().into());
            let reply = self.runtime.block_on(request).map_err(failed("the fleet's control"))?;
            return talk::read_reply(&reply.payload).map(drop).map_err(failed("a stream"));
        }
        // A principal may fill its own stream only, and a full one removes nothing.
        let records = Config {
            name: subject.stream(),
            subjects: vec![format!("flame.records.*.{principal}.>")],
            max_bytes: i64::try_from(bound).unwrap_or(i64::MAX),
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            allow_direct: true,
            ..Config::default()
        };
        let marks = Config {
            name: MARKS.to_owned(),
            subjects: vec!["flame.marks.>".to_owned()],
            max_messages_per_subject: 1,
            discard: DiscardPolicy::Old,
            storage: StorageType::File,
            allow_direct: true,
            ..Config::default()
        };
        for config in [records, marks] {
            let made = self.runtime.block_on(self.context()?.get_or_create_stream(config));
            made.map_err(|e| match e.kind() {
                CreateStreamErrorKind::JetStream(error)
                    if error.error_code() == ErrorCode::STORAGE_RESOURCES_EXCEEDED =>
                {
                    let advice = "choose a smaller one (stream in [fleet]), or give the server more room";
                    failed("a stream")(format!("the server has no room for {bound} bytes: {advice}"))
                }
                _ => failed("a stream")(e),
            })?;
        }
        Ok(())
    }

    fn last(&mut self, subject: &Subject) -> Result<Option<Record>, LogError> {
        let last = self.last_of(&subject.stream(), subject.as_str())?;
        Ok(last.map(|(sequence, bytes)| Record { sequence, subject: subject.clone(), bytes }))
    }

    fn publish_all(
        &mut self,
        subject: &Subject,
        messages: Vec<Vec<u8>>,
        after: Option<u64>,
    ) -> Result<Vec<Published>, LogError> {
        let context = self.context()?;
        self.runtime.block_on(async {
            let (mut answers, mut waiting) = (Vec::new(), Vec::new());
            let mut fence = after;
            for bytes in messages {
                let mut message = PublishMessage::build().payload(bytes.into());
                let fenced = fence.take();
                if let Some(after) = fenced {
                    message = message.expected_last_subject_sequence(after);
                }
                let sent = context.send_publish(subject.as_str().to_owned(), message).await;
                let sent = sent.map_err(failed("a message"))?;
                if fenced.is_none() {
                    waiting.push(sent);
                    continue;
                }
                let answer = published(sent.await)?;
                answers.push(answer);
                if !matches!(answer, Published::Taken(_)) {
                    return Ok(answers);
                }
            }
            for sent in waiting {
                answers.push(published(sent.await)?);
            }
            Ok(answers)
        })
    }

    fn pull(&mut self, subject: &Subject, behind: u64, most: usize) -> Result<Vec<Record>, LogError> {
        let stream = self.stream(&subject.stream())?;
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: behind.saturating_add(1) },
            ack_policy: AckPolicy::None,
            memory_storage: true,
            ..pull::Config::default()
        };
        let messages = self.runtime.block_on(async {
            let consumer = stream.create_consumer(config).await.map_err(failed("a consumer"))?;
            let batch = consumer.fetch().max_messages(most).messages().await;
            let mut batch = batch.map_err(failed("its messages"))?;
            let mut all = Vec::new();
            while let Some(message) = batch.next().await {
                all.push(message.map_err(failed("its messages"))?);
            }
            stream.delete_consumer(&consumer.cached_info().name).await.map_err(failed("a consumer"))?;
            Ok::<_, LogError>(all)
        })?;
        let record = |message: jetstream::Message| {
            let sequence = message.info().map_err(failed("a message"))?.stream_sequence;
            let found = message.subject.as_str();
            let subject = Subject::parse(found)
                .map_err(|e| LogError::Subject { found: found.to_owned(), reason: e.to_string() })?;
            Ok(Record { sequence, subject, bytes: message.payload.to_vec() })
        };
        messages.into_iter().map(record).collect()
    }

    fn remove(&mut self, subject: &Subject, until: u64) -> Result<(), LogError> {
        let stream = self.stream(&subject.stream())?;
        let purge = stream.purge().sequence(until.saturating_add(1));
        self.runtime.block_on(purge.into_future()).map_err(failed("a removal"))?;
        Ok(())
    }

    fn put(&mut self, subject: &Subject, mark: Vec<u8>) -> Result<(), LogError> {
        let context = self.context()?;
        let put = async { context.publish(subject.mark(), mark.into()).await?.await };
        self.runtime.block_on(put).map_err(failed("a mark"))?;
        Ok(())
    }

    fn mark(&mut self, subject: &Subject) -> Result<Option<Vec<u8>>, LogError> {
        Ok(self.last_of(MARKS, &subject.mark())?.map(|(_, bytes)| bytes))
    }
}
