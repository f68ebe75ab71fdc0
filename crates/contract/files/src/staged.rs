use crate::{ALWAYS, denied, random_name};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file that gets its name when it is whole; until then it is `NAME.RANDOM.partial`, and it is removed if
/// it is dropped without [`Staged::finish`] or [`Staged::keep`].
#[derive(Debug)]
pub struct Staged {
    file: File,
    /// Both names are in it.
    folder: OwnedFd,
    partial: String,
    target: OsString,
    /// Where the partial file is, as the caller wrote it.
    shown: PathBuf,
    /// It is not removed: it has its name, or is to stay partial.
    finished: bool,
}

impl Staged {
    /// Stages a file for `path`. A symbolic link there is followed only if it is this user's or the
    /// administrator's: anyone can make one in a shared folder.
    pub fn new(path: &Path) -> io::Result<Self> {
        Self::with(path, 0o666)
    }

    /// The same, for this user alone.
    pub fn private(path: &Path) -> io::Result<Self> {
        Self::with(path, 0o600)
    }

    fn with(path: &Path, mode: u32) -> io::Result<Self> {
        let target = followed(path)?;
        let name = target.file_name().ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Not by its descriptor alone: the folder may be reached through links of the administrator's.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty())?;
        // Names are at most 255 bytes, and this part of it is for people.
        let shown: String = name.to_string_lossy().chars().filter(|c| !c.is_control()).take(40).collect();
        let partial = random_name(&format!("{shown}."), ".partial")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        let fd = rustix::fs::openat(&folder, &partial, flags, Mode::from_raw_mode(mode))?;
        let shown = parent.join(&partial);
        Ok(Self { file: File::from(fd), target: name.to_owned(), folder, partial, shown, finished: false })
    }

    /// Gives the file its name, once it is on the disk.
    pub fn finish(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        rustix::fs::renameat(&self.folder, &self.partial, &self.folder, &self.target)?;
        self.finished = true;
        Ok(())
    }

    /// Leaves the file under its partial name, which is returned: it is not removed when it is dropped.
    pub fn keep(&mut self) -> PathBuf {
        self.finished = true;
        self.shown.clone()
    }
}

impl Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing can be done about a partial file that cannot be removed; its name says what it is.
            let _ = rustix::fs::unlinkat(&self.folder, &self.partial, AtFlags::empty());
        }
    }
}

/// Links in a row, at most.
const MAX_LINKS: usize = 8;

/// What `path` is in the end, over links that may be trusted.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let stat = match rustix::fs::lstat(&path) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => return Ok(path),
            Err(e) => return Err(e.into()),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(path);
        }
        let me = rustix::process::geteuid().as_raw();
        if stat.st_uid != me && stat.st_uid != 0 {
            let (path, owner) = (path.display(), stat.st_uid);
            return Err(denied(format!(
                "{path} is a symbolic link of user {owner}, which is not followed: remove it"
            )));
        }
        let to = std::fs::read_link(&path)?;
        let parent = path.parent().unwrap_or(Path::new("")).join(OsStr::new(""));
        path = parent.join(to);
    }
    Err(denied(format!("more than {MAX_LINKS} symbolic links in a row")))
}
