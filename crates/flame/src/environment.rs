//! The environment variables that the command reads, and the capabilities that it uses, for its help and
//! `docs/environment.md`.

/// Variables, and the meaning of each.
pub const VARIABLES: [(&str, &str); 19] = [
    ("FLAME_MODULES", "folders of modules that are given by name, separated by colons"),
    (
        "FLAME_CACHE",
        "folder of compiled modules (of each principal apart) and calibrations; only its user may be able to write it",
    ),
    ("FLAME_SDK", "folder of the SDKs for flame new and flame build"),
    (
        "FLAME_RUNNER",
        "the program in which modules run apart: with --isolate, and those of principals on a node",
    ),
    (
        "FLAME_LOG",
        "messages on standard error, as for -v: error, warn, info, debug, trace, or TARGET=LEVEL,...",
    ),
    ("FLAME_NODE", "name or address of the node for commands that manage modules on a node"),
    ("FLAME_NODES", "file of the known nodes"),
    ("FLAME_ARCHIVE", "folder of a fleet's archive, for flame query"),
    ("FLAME_FLEET", "folder of a fleet with its keys and state, for its operator's commands"),
    ("FLAME_CLANG", "the compiler for modules in C"),
    ("CARGO", "the cargo that builds modules in Rust"),
    ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", "flags for modules in Rust, besides those they need"),
    ("COLUMNS", "width of tables, also for pipes; 0 and other text do not count"),
    ("NO_COLOR", "if it is not empty, help has no colours"),
    ("PATH", "folders of programs, for flame-fleet, which runs flame fleet and flame query"),
    ("HOME", "the user's folder, for the next two"),
    ("XDG_CACHE_HOME", "folder that contains the cache, by default ~/.cache"),
    ("XDG_CONFIG_HOME", "folder that contains the file of nodes, by default ~/.config"),
    ("SUDO_UID", "set by sudo: the user who called, with whose rights files are read"),
];

/// Capabilities, and what each is used for.
pub const CAPABILITIES: [(&str, &str); 9] = [
    (
        "CAP_NET_RAW",
        "flame run -i, flame node, FromDevice, ToDevice: to open a packet socket on an interface",
    ),
    (
        "CAP_NET_ADMIN",
        "--capture xdp, FromDevice(SNIFFER false or METHOD XDP): to keep packets from the kernel's stack; KernelTun: to make an interface",
    ),
    ("CAP_BPF", "--capture xdp, FromDevice(SNIFFER false or METHOD XDP): to load the program that does this"),
    (
        "CAP_SYS_NICE",
        "flame node, flame run --send: to guarantee processor time to what is reserved and to links, unless scheduler is \"fair\"",
    ),
    ("CAP_SETUID", "flame node: to become the user that its configuration names"),
    ("CAP_SETGID", "flame node: likewise, for the groups"),
    ("CAP_SETPCAP", "flame node: to give up all other capabilities"),
    ("CAP_DAC_OVERRIDE", "flame node: to open its state before it becomes that user"),
    ("CAP_CHOWN", "flame node: likewise, to give its files to that user"),
];

/// Returns both lists as text for the end of the help.
pub fn text() -> String {
    let lines = |list: &[(&str, &str)]| {
        list.iter().map(|(name, meaning)| format!("  {name}\n          {meaning}\n")).collect::<String>()
    };
    format!(
        "Environment variables:\n{}\nCapabilities (`flame doctor` examines this machine):\n{}",
        lines(&VARIABLES),
        lines(&CAPABILITIES)
    )
}
