//! Values made of the bytes of a fuzzer; zeros when they are used up.

/// The bytes that are left.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to so many bytes.
    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(length.min(self.0.len()));
        self.0 = later;
        now
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.take(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// A short piece: its length comes first.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }
}
