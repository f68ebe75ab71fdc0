use crate::{ALWAYS, denied, random_name};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file that receives its name when it is complete. Until then it is called `NAME.RANDOM.partial`, and it
/// is removed if it is dropped without [`Staged::finish`] or [`Staged::keep`].
#[derive(Debug)]
pub struct Staged {
    file: File,
    /// The folder of the partial and the final file.
    folder: OwnedFd,
    partial: String,
    target: OsString,
    /// The path of the partial file, relative to the caller's path.
    shown: PathBuf,
    /// Whether the file stays when it is dropped: it has its final name, or is to stay partial.
    finished: bool,
}

impl Staged {
    /// Stages a file for `path`. Follows a symbolic link there only if it belongs to this user or to root,
    /// because in a shared folder anyone can create one.
    ///
    /// # Errors
    ///
    /// Returns an error if `path` has no file name, if it leads through a link of another user or more than
    /// eight links, or if the partial file cannot be created.
    pub fn new(path: &Path) -> io::Result<Self> {
        Self::with(path, 0o666)
    }

    /// Stages a file for `path` with access for this user only.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Staged::new`].
    pub fn private(path: &Path) -> io::Result<Self> {
        Self::with(path, 0o600)
    }

    fn with(path: &Path, mode: u32) -> io::Result<Self> {
        let target = followed(path)?;
        let name = target.file_name().ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // `ALWAYS` is left out because links of the administrator may lead to the folder.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty())?;
        // Names have at most 255 bytes, and this part only serves recognition.
        let shown: String = name.to_string_lossy().chars().filter(|c| !c.is_control()).take(40).collect();
        let partial = random_name(&format!("{shown}."), ".partial")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        let fd = rustix::fs::openat(&folder, &partial, flags, Mode::from_raw_mode(mode))?;
        let shown = parent.join(&partial);
        Ok(Self { file: File::from(fd), target: name.to_owned(), folder, partial, shown, finished: false })
    }

    /// Syncs the file to disk. Several files that are written first and then synced, before any of them is
    /// finished, cost the file system one commit.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be synced.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Syncs the file to disk and renames it to its final name.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be synced or renamed. It is then still partial.
    pub fn finish(&mut self) -> io::Result<()> {
        self.sync()?;
        rustix::fs::renameat(&self.folder, &self.partial, &self.folder, &self.target)?;
        self.finished = true;
        Ok(())
    }

    /// Keeps the partial file when this value is dropped, and returns its path.
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
            // Nothing can be done about a partial file that cannot be removed. Its name shows its state.
            let _ = rustix::fs::unlinkat(&self.folder, &self.partial, AtFlags::empty());
        }
    }
}

/// The maximum number of consecutive links.
const MAX_LINKS: usize = 8;

/// Follows trusted links from `path` to their final target.
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
