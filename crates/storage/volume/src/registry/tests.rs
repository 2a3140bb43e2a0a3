//! What can be told from the specification alone, and how errors read.

use super::*;
use crate::{Extent, Lba, WriteCache};

fn refusal(spec: &VolumeSpec) -> String {
    match open(spec) {
        Ok(_) => panic!("the volume opens"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn backends_are_found_by_their_names() {
    let backends = Backends::local();
    let names: Vec<_> = backends.names().map(BackendName::as_str).collect();
    assert_eq!(names, ["null", "mem", "file", "block"]);
    assert_eq!(backends.find("mem"), Some(BackendName::MEM));
    assert_eq!(backends.find("tape"), None);
    let spec = VolumeSpec::new("v", BackendName::new("tape"));
    assert_eq!(
        refusal(&spec),
        "volume v: there is no backend=tape in this program"
    );
}

#[test]
fn sizes_are_whole_blocks() {
    let spec = |size, block_size| VolumeSpec {
        size,
        block_size,
        ..VolumeSpec::new("v", BackendName::NULL)
    };
    assert!(open(&spec(Some(512), 512)).is_ok());
    assert_eq!(
        refusal(&spec(Some(1000), 512)),
        "v: size 1000 is not a multiple of the block size 512; use size=1024, or another block-size"
    );
    assert_eq!(
        refusal(&spec(Some(0), 512)),
        "v is empty; give a size=… of at least one block"
    );
    assert_eq!(
        refusal(&spec(None, 512)),
        "volume v: backend=null needs size=…, for example size=1G"
    );
    assert_eq!(
        refusal(&spec(Some(1024), 1024)),
        "volume v: block size 1024 is not served; use 512 or 4096"
    );
    assert!(
        open(&spec(Some(u64::MAX - 4095), 4096)).is_ok(),
        "null can be huge"
    );
}

#[test]
fn the_largest_size_has_no_next_multiple_to_offer() {
    let spec = VolumeSpec {
        size: Some(u64::MAX),
        ..VolumeSpec::new("v", BackendName::NULL)
    };
    assert!(refusal(&spec).contains("not a multiple"));
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let spec = VolumeSpec {
        size: Some(1 << 60),
        ..VolumeSpec::new("m", BackendName::MEM)
    };
    assert!(matches!(open(&spec), Err(OpenError::TooLarge { .. })));
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let spec = |backend| VolumeSpec {
        size: Some(512),
        ..VolumeSpec::new("v", backend)
    };
    for backend in [BackendName::NULL, BackendName::MEM] {
        let path = VolumeSpec {
            path: Some("/x".into()),
            ..spec(backend)
        };
        assert!(refusal(&path).contains("path means nothing to backend="));
        let direct = VolumeSpec {
            direct: true,
            ..spec(backend)
        };
        assert!(refusal(&direct).contains("direct means nothing to backend="));
    }
}

#[test]
fn volumes_without_a_medium_have_no_cache_to_flush() {
    for backend in [BackendName::NULL, BackendName::MEM] {
        let spec = VolumeSpec {
            size: Some(4096),
            ..VolumeSpec::new("v", backend)
        };
        let volume = open(&spec).expect("open");
        assert_eq!(volume.characteristics().write_cache, WriteCache::None);
        assert_eq!(
            volume.known_zeros(Extent::new(0, 8)),
            backend == BackendName::NULL,
            "{backend}"
        );
    }
}

#[test]
fn read_only_null_and_mem_refuse_writes() {
    for backend in [BackendName::NULL, BackendName::MEM] {
        let spec = VolumeSpec {
            size: Some(4096),
            read_only: true,
            ..VolumeSpec::new("v", backend)
        };
        let volume = open(&spec).expect("open");
        assert!(volume.characteristics().read_only);
        let attempt = volume.try_write(Lba(0), &[0; 512], false);
        assert!(matches!(
            attempt,
            crate::Attempt::Done(Err(crate::VolumeError::ReadOnly))
        ));
    }
}

#[test]
fn errors_name_the_path_and_what_to_do() {
    let path = std::env::temp_dir().join("longshore-no-such-volume");
    let missing = VolumeSpec {
        path: Some(path.clone()),
        ..VolumeSpec::new("v", BackendName::FILE)
    };
    assert_eq!(
        refusal(&missing),
        format!(
            "{}: no such file; give size=… to create it, or correct the path",
            path.display()
        )
    );
    let device = VolumeSpec {
        backend: BackendName::BLOCK,
        ..missing
    };
    assert_eq!(
        refusal(&device),
        format!("{}: no such device; correct the path", path.display())
    );
    let locked = OpenError::Locked {
        path: "/d".into(),
        holder: crate::open::LockHolder::Process(7),
    };
    assert_eq!(
        locked.to_string(),
        "/d: in use by process 7; two servers on one file would destroy it. Stop the other one, or \
         open it read-only in both"
    );
}
