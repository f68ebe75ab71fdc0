//! The rights of each process of the node, read from the kernel (`/proc/PID/task/TID/status`), not from the
//! rights that were requested when it was started.

use caps::Capability;
use flame_api::{Process, Security, Threads};
use procfs_core::FromRead;
use procfs_core::process::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::os::linux::fs::MetadataExt;
use std::{fs, io};

/// Maximum number of times that the threads of a process are listed.
const LISTINGS: usize = 20;

/// Returns this process and all that descend from it.
///
/// # Errors
///
/// Returns an error if the kernel does not show this process. Others may end at any time, and are left out.
pub fn processes() -> io::Result<Security> {
    let own = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in numbers("/proc")? {
        if let Ok(status) = status(&format!("/proc/{pid}")) {
            children.entry(status.ppid).or_default().push(pid);
        }
    }
    let namespace = user_namespace(own);
    let mut processes = vec![process(own, namespace)?];
    let (mut waiting, mut seen) = (vec![own], BTreeSet::from([own]));
    while let Some(parent) = waiting.pop() {
        for pid in children.get(&parent).into_iter().flatten().filter(|pid| seen.insert(**pid)) {
            waiting.push(*pid);
            processes.extend(process(*pid, namespace));
        }
    }
    Ok(Security { processes })
}

/// Returns the numbers among the names of a folder.
fn numbers(folder: &str) -> io::Result<Vec<i32>> {
    Ok(fs::read_dir(folder)?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Returns the status of a process or thread, by its folder.
fn status(folder: &str) -> io::Result<Status> {
    Status::from_read(fs::File::open(format!("{folder}/status"))?).map_err(io::Error::other)
}

/// Returns a number that identifies the user namespace of a process.
fn user_namespace(pid: i32) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/user")).ok().map(|namespace| namespace.st_ino())
}

fn process(pid: i32, namespace: Option<u64>) -> io::Result<Process> {
    let folder = format!("/proc/{pid}");
    let Status { ppid, name, .. } = status(&folder)?;
    let mut threads: Vec<Threads> = Vec::new();
    for status in all_threads(|| listed(&folder))? {
        let one = threads_of(&status);
        match threads.iter_mut().find(|t| Threads { count: 1, ..(*t).clone() } == one) {
            Some(same) => same.count += 1,
            None => threads.push(one),
        }
    }
    let own_user_namespace = namespace.and_then(|own| Some(user_namespace(pid)? != own));
    Ok(Process { pid, parent: ppid, name, runs: None, own_user_namespace, threads })
}

/// Returns the status of each thread that the kernel lists for a process and that has not ended meanwhile,
/// and the number of threads that the process has: the larger number before and after the list.
fn listed(folder: &str) -> io::Result<(Vec<Status>, u64)> {
    let before = status(folder)?.threads;
    let tasks = format!("{folder}/task");
    let listed = numbers(&tasks)?.into_iter();
    let threads: Vec<_> = listed.filter_map(|thread| status(&format!("{tasks}/{thread}")).ok()).collect();
    Ok((threads, before.max(status(folder)?.threads)))
}

/// Returns all threads of a process from its lists. While a thread ends, the kernel's list lacks others that
/// come after it, so an incomplete list is read again. If threads end all the time, the longest one counts.
fn all_threads<T>(mut listed: impl FnMut() -> io::Result<(Vec<T>, u64)>) -> io::Result<Vec<T>> {
    let mut longest = Vec::new();
    for _ in 0..LISTINGS {
        let (threads, all) = listed()?;
        if threads.len() as u64 >= all {
            return Ok(threads);
        }
        if threads.len() > longest.len() {
            longest = threads;
        }
    }
    Ok(longest)
}

fn threads_of(status: &Status) -> Threads {
    Threads {
        count: 1,
        user: status.euid,
        group: status.egid,
        effective: names(status.capeff),
        permitted: names(status.capprm),
        bounding: names(status.capbnd.unwrap_or(u64::MAX)),
        no_new_privileges: status.nonewprivs.map(|is| is != 0),
        seccomp: status.seccomp.map(|mode| match mode {
            0 => "none".to_owned(),
            1 => "strict".to_owned(),
            2 => "filter".to_owned(),
            other => format!("mode {other}"),
        }),
    }
}

/// Returns the names of capabilities, and the numbers of those without one here.
fn names(mask: u64) -> Vec<String> {
    let known = caps::all();
    let name = |bit: u8| {
        let of = known.iter().find(|c: &&Capability| c.index() == bit);
        of.map_or_else(|| format!("capability {bit}"), ToString::to_string)
    };
    // A missing line reads as all bits, of which only the known ones are capabilities.
    let bits = if mask == u64::MAX { known.iter().fold(0, |all, c| all | c.bitmask()) } else { mask };
    (0..64).filter(|bit| bits >> bit & 1 == 1).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_names() {
        assert_eq!(names(1 << 13 | 1), ["CAP_CHOWN", "CAP_NET_RAW"]);
        assert_eq!(names(1 << 63), ["capability 63"]);
        assert!(names(0).is_empty() && names(u64::MAX).contains(&"CAP_SYS_ADMIN".to_owned()));
    }

    #[test]
    fn a_list_that_lacks_threads_is_read_again() {
        // In the second list, one thread has just ended, and the next is missing.
        let lists = [(vec![1], 3), (vec![1, 4], 3), (vec![1, 3, 4], 3), (vec![1], 1)];
        let mut next = lists.iter().cloned();
        assert_eq!(all_threads(|| Ok(next.next().unwrap())).unwrap(), [1, 3, 4]);
        let mut next = lists[..2].iter().cloned().cycle();
        assert_eq!(all_threads(|| Ok(next.next().unwrap())).unwrap(), [1, 4]);
        assert!(all_threads::<u8>(|| Err(io::ErrorKind::NotFound.into())).is_err());
    }

    #[test]
    fn a_child_is_shown_with_its_own_rights() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let security = processes();
        child.kill().unwrap();
        child.wait().unwrap();
        let security = security.unwrap();
        let own = &security.processes[0];
        assert_eq!(own.pid as u32, std::process::id());
        let all: u64 = own.threads.iter().map(|t| t.count).sum();
        assert!(all >= 2, "the test's thread and the main one: {own:?}");
        let child = security.processes.iter().find(|p| p.pid == pid).unwrap();
        assert_eq!((child.parent as u32, child.threads.len()), (std::process::id(), 1));
    }
}
