//! Writes archives in the `newc` format of cpio, which the kernel unpacks as its first file
//! system (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`). Archives may be
//! appended to one another.
//!
//! ```text
//! header: "070701", then 13 fields of 8 hex digits; name, zero, padded to 4; data, padded to 4
//! ```

const TYPE_FILE: u32 = 0o100_000;
const TYPE_FOLDER: u32 = 0o040_000;
const TYPE_LINK: u32 = 0o120_000;

/// An archive in the making.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// A folder. Its parents must have been added before.
    pub fn folder(&mut self, path: &str) {
        self.entry(path, TYPE_FOLDER | 0o755, &[]);
    }

    /// A file that may be executed.
    pub fn program(&mut self, path: &str, data: &[u8]) {
        self.entry(path, TYPE_FILE | 0o755, data);
    }

    /// A file that is only read.
    pub fn file(&mut self, path: &str, data: &[u8]) {
        self.entry(path, TYPE_FILE | 0o644, data);
    }

    /// A symbolic link at `path` to `to`.
    pub fn link(&mut self, path: &str, to: &str) {
        self.entry(path, TYPE_LINK | 0o777, to.as_bytes());
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8]) {
        let name = path.trim_start_matches('/');
        let size = u32::try_from(data.len()).expect("files of an image are below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("paths are short");
        self.inode += 1;
        // Inode, mode, uid, gid, links, time, size, device ×2, special device ×2, name, check.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_data_are_padded_to_four_bytes() {
        let mut archive = Archive::default();
        archive.file("/a", b"12345");
        let bytes = archive.finish();
        // Header 110, name "a\0" to 112, data to 120; then the trailer's 110 and its name of 11.
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[110..120], b"a\x0012345\0\0\0");
        assert_eq!(&bytes[54..62], b"00000005"); // the seventh field is the size
        assert_eq!(bytes.len(), (120 + 110 + 11_usize).next_multiple_of(4));
    }
}
