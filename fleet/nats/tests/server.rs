//! A real server that is killed, and loses its disk.

use crate::program::program;
use flame_fleet_nats::Nats;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Server {
    program: PathBuf,
    folder: tempfile::TempDir,
    child: Option<Child>,
    address: String,
}

impl Server {
    /// Starts a server on a port that is free, or says why it cannot.
    pub fn start() -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { program, folder, child: None, address: String::new() };
        server.begin();
        Some(server)
    }

    pub fn begin(&mut self) {
        let folder = self.folder.path();
        let config = format!(
            "listen: \"127.0.0.1:-1\"\nports_file_dir: {:?}\njetstream {{\n store_dir: {:?}\n \
             sync_interval: always\n}}\n",
            folder,
            folder.join("disk"),
        );
        std::fs::write(folder.join("config"), config).unwrap();
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(folder.join("config")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let ports = loop {
            assert!(child.try_wait().unwrap().is_none(), "the server ended");
            match ports(folder) {
                Some(ports) => break ports,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        (self.child, self.address) = (Some(child), ports);
    }

    pub fn connect(&self) -> Nats {
        Nats::connect(&self.address).unwrap()
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        for entry in std::fs::read_dir(self.folder.path()).unwrap().flatten() {
            if entry.path().extension().is_some_and(|e| e == "ports") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    pub fn lose_disk(&self) {
        std::fs::remove_dir_all(self.folder.path().join("disk")).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the address in the file that the server writes once it listens.
fn ports(folder: &Path) -> Option<String> {
    let files = std::fs::read_dir(folder).ok()?.flatten();
    let file = files.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "ports"))?;
    let text = std::fs::read_to_string(file).ok()?;
    let begin = text.find("nats://")?;
    Some(text[begin..].split('"').next()?.to_owned()).filter(|_| text.trim_end().ends_with('}'))
}
