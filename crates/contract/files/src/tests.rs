use super::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn of_another(path: &Path) {
    std::os::unix::fs::lchown(path, Some(65534), None).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refused<T: std::fmt::Debug>(result: io::Result<T>, reason: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(reason), "{error:?}, expected {reason:?}");
}

#[test]
fn a_private_file_is_ones_own_and_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    create_new(&path).unwrap().write_all(b"secret").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(read_at_most(open(&path, Others::Nothing).unwrap(), 6).unwrap(), b"secret");
    refused(read_at_most(open(&path, Others::Nothing).unwrap(), 5), "more than 5 bytes");
    refused(create_new(&path), "exists");
    for (bits, strict, lax) in
        [(0o640, false, true), (0o604, false, true), (0o620, false, false), (0o602, false, false)]
    {
        mode(&path, bits);
        assert_eq!(open(&path, Others::Nothing).is_ok(), strict, "{bits:o}");
        assert_eq!(open(&path, Others::Read).is_ok(), lax, "{bits:o}");
        assert_eq!(append(&path, Others::Read).is_ok(), lax, "{bits:o}");
    }
    mode(&path, 0o600);
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    refused(open(&link, Others::Nothing), "symbolic link");
    refused(append(&link, Others::Nothing), "symbolic link");
    refused(create_new(&link), "exists");
    refused(open(folder.path(), Others::Nothing), "no regular file");
    if root() {
        of_another(&path);
        refused(open(&path, Others::Nothing), "belongs to user 65534, expected 0");
    }
}

/// Opening a pipe in place of a file does not block.
#[test]
fn nothing_that_blocks_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    refused(open(&path, Others::Nothing), "no regular file");
}

#[test]
fn a_private_folder_is_ones_own_and_so_is_what_is_in_it() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("a/b");
    let folder = Folder::private(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(folder.read("x", 9).unwrap(), None);
    folder.put("x", b"one").unwrap();
    assert!(!folder.put_new("x", b"two").unwrap() && folder.put_new("y", b"two").unwrap());
    assert_eq!(folder.read("x", 9).unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 2, "nothing is left over");
    // The folder is exchanged while it is open: the descriptor still refers to the original.
    fs::rename(&path, above.path().join("gone")).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("x"), "forged").unwrap();
    assert_eq!(folder.read("x", 9).unwrap().as_deref(), Some(&b"one"[..]));
    // Files with access for others, links and pipes in the folder are not read.
    symlink("y", above.path().join("gone/link")).unwrap();
    refused(folder.read("link", 9), "symbolic link");
    mode(&above.path().join("gone/y"), 0o644);
    refused(folder.read("y", 9), "others may read");
    for bits in [0o750, 0o705, 0o777, 0o711] {
        mode(&path, bits);
        refused(Folder::private(&path), "chmod 700");
    }
    mode(&path, 0o700);
    let link = above.path().join("link");
    symlink(&path, &link).unwrap();
    refused(Folder::private(&link), "symbolic link");
    if root() {
        of_another(&path);
        refused(Folder::private(&path), "belongs to user 65534");
    }
}

#[test]
fn a_staged_file_appears_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let names = || {
        let names =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<_>>()
    };
    let path = folder.path().join("out");
    drop(Staged::new(&path).unwrap());
    assert_eq!(names().len(), 0);
    let mut staged = Staged::new(&path).unwrap();
    staged.write_all(b"records").unwrap();
    assert!(names()[0].starts_with("out.") && names()[0].ends_with(".partial"), "{:?}", names());
    staged.finish().unwrap();
    drop(staged);
    assert_eq!(names(), ["out"]);
    // A link of this user stays, and its target is replaced.
    let (link, far) = (folder.path().join("link"), folder.path().join("far"));
    symlink("far", &link).unwrap();
    Staged::new(&link).unwrap().finish().unwrap();
    assert!(far.is_file() && fs::symlink_metadata(&link).unwrap().is_symlink());
    if root() {
        of_another(&link);
        refused(Staged::new(&link), "symbolic link of user 65534");
    }
    symlink("circle", folder.path().join("circle")).unwrap();
    refused(Staged::new(&folder.path().join("circle")), "in a row");
}
