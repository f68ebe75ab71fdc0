//! Messages that are not kept: statements, reports and requests of the fleet's control.

use crate::{Access, LogError, Version};
use async_nats::Client;
use async_nats::connection::State;
use futures_util::StreamExt as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The messages that wait for a reader. Others are dropped: both ends repeat what matters.
const WAITING: usize = 4096;

/// The time between two looks at a client without a connection.
const TEND: Duration = Duration::from_millis(300);

/// A connection for messages that are not kept. It is made again by itself.
pub struct Bus {
    access: Access,
    subjects: Vec<String>,
    runtime: Runtime,
    client: Client,
    /// The connections of clients before this one, and when it was last looked at.
    before: u64,
    tended: Instant,
    notes: Receiver<Note>,
    to_notes: SyncSender<Note>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub subject: String,
    pub reply: Option<String>,
    pub bytes: Vec<u8>,
}

impl Bus {
    /// Begins to connect, now and whenever the connection is lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the address or the authority's file cannot be read.
    pub fn connect(access: &Access) -> Result<Self, LogError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Access::failed("its runtime"))?;
        let client = client(&runtime, access)?;
        let (to_notes, notes) = sync_channel(WAITING);
        let (access, subjects, tended) = (access.clone(), Vec::new(), Instant::now());
        Ok(Self { access, subjects, runtime, client, before: 0, tended, notes, to_notes })
    }

    /// Begins again with a client that gave up, as it does when the server does not know its user (yet).
    ///
    /// # Errors
    ///
    /// See [`Bus::connect`].
    pub fn tend(&mut self) -> Result<(), LogError> {
        if self.client.connection_state() == State::Connected || self.tended.elapsed() < TEND {
            return Ok(());
        }
        self.tended = Instant::now();
        let flushed = async { timeout(Duration::from_millis(1), self.client.flush()).await };
        if let Ok(Err(_)) = self.runtime.block_on(flushed) {
            self.before = self.connects();
            self.client = client(&self.runtime, &self.access)?;
            self.listen(&self.subjects)?;
        }
        Ok(())
    }

    /// Receives the messages on subjects, which may have wildcards.
    ///
    /// # Errors
    ///
    /// Returns an error if a subject is invalid.
    pub fn subscribe(&mut self, subjects: &[&str]) -> Result<(), LogError> {
        let subjects: Vec<_> = subjects.iter().map(|&subject| subject.to_owned()).collect();
        self.listen(&subjects)?;
        self.subjects.extend(subjects);
        Ok(())
    }

    fn listen(&self, subjects: &[String]) -> Result<(), LogError> {
        for subject in subjects {
            let messages = self.runtime.block_on(self.client.subscribe(subject.clone()));
            let mut messages = messages.map_err(Access::failed("a subscription"))?;
            let notes = self.to_notes.clone();
            self.runtime.spawn(async move {
                while let Some(message) = messages.next().await {
                    let reply = message.reply.map(|reply| reply.to_string());
                    let (subject, bytes) = (message.subject.to_string(), message.payload.to_vec());
                    if let Err(TrySendError::Disconnected(_)) = notes.try_send(Note { subject, reply, bytes })
                    {
                        break;
                    }
                }
            });
        }
        Ok(())
    }

    /// Returns the next message, if one comes in this time.
    pub fn next(&self, within: Duration) -> Option<Note> {
        self.notes.recv_timeout(within).ok()
    }

    /// Sends a message. Without a connection it is dropped.
    pub fn publish(&self, subject: &str, bytes: Vec<u8>) {
        if self.is_connected() {
            // An error is the end of the connection, after which both ends begin again.
            let _ = self.runtime.block_on(self.client.publish(subject.to_owned(), bytes.into()));
        }
    }

    /// Sends a message and waits for a reply.
    ///
    /// # Errors
    ///
    /// Returns an error if no reply comes in this time.
    pub fn request(&self, subject: &str, bytes: Vec<u8>, within: Duration) -> Result<Vec<u8>, LogError> {
        let request = async_nats::Request::new().payload(bytes.into()).timeout(Some(within));
        let reply = self.runtime.block_on(self.client.send_request(subject.to_owned(), request));
        reply.map(|reply| reply.payload.to_vec()).map_err(Access::failed("a request"))
    }

    /// Waits until all that was sent has reached the server.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection fails.
    pub fn flush(&self) -> Result<(), LogError> {
        self.runtime.block_on(self.client.flush()).map_err(Access::failed("its messages"))
    }

    /// Returns whether there is a connection to a server that is accepted.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
            && Version::accepted(&self.client.server_info().version).is_ok()
    }

    /// Returns how often a connection was made.
    pub fn connects(&self) -> u64 {
        self.before + self.client.statistics().connects.load(Ordering::Relaxed)
    }

    /// Returns the id of the server that it is connected to.
    pub fn server(&self) -> String {
        self.client.server_info().server_id
    }
}

fn client(runtime: &Runtime, access: &Access) -> Result<Client, LogError> {
    let options = access.options().retry_on_initial_connect();
    runtime.block_on(options.connect(&access.server)).map_err(Access::failed("the connection"))
}
