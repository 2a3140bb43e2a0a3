//! Fields of what a controller tells about itself: pages of bytes from a peer, read without trust.
//!
//! A field beyond the end of a page reads as zero, which throughout NVMe means "not reported".

/// A page of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a>(pub &'a [u8]);

impl Page<'_> {
    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let field = self.0.get(at..).and_then(<[u8]>::first_chunk);
        field.copied().unwrap_or([0; N])
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        u8::from_le_bytes(self.array(at))
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(super) fn u128(self, at: usize) -> u128 {
        u128::from_le_bytes(self.array(at))
    }

    /// An identifier, unless it is all zeros: then there is none.
    pub(super) fn identifier<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        let field = self.array(at);
        (field != [0; N]).then_some(field)
    }

    /// Text that is padded with spaces or zeros. What is not printable is replaced, so that it can go to
    /// a terminal.
    pub(super) fn text(self, at: usize, length: usize) -> String {
        let field = self.0.get(at..).unwrap_or_default();
        let field = &field[..field.len().min(length)];
        let end = field.iter().position(|byte| *byte == 0);
        let text = String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]);
        let shown = text.trim_matches(' ').chars();
        shown
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_the_end_reads_as_zero() {
        let page = Page(&[1, 2, 3]);
        assert_eq!(page.u16(1), 0x0302);
        assert_eq!((page.u16(2), page.u64(0), page.u8(usize::MAX)), (0, 0, 0));
        assert_eq!(page.text(9, 4), "");
    }

    #[test]
    fn text_loses_padding_and_what_could_drive_a_terminal() {
        assert_eq!(Page(b"disk 7   ").text(0, 9), "disk 7");
        assert_eq!(Page(b"disk\0rest").text(0, 9), "disk");
        assert_eq!(Page(b"a\x1b[31m\xff").text(0, 9), "a\u{fffd}[31m\u{fffd}");
    }
}
