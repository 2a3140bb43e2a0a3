//! Sequence numbers that wrap around (RFC 1982).

/// Declares a 32-bit sequence number as a type of its own.
///
/// Such numbers form a circle: of two, the one less than 2^31 steps behind comes first. They have
/// no total order, so the type has no `Ord`, and its `precedes` says which comes first. The two
/// numbers exactly opposite each other precede each other in neither direction (RFC 1982 §3.2).
///
/// ```
/// longshore_wire::serial_number! {
///     /// Counts commands.
///     pub struct CmdSn
/// }
/// let last = CmdSn(u32::MAX);
/// assert_eq!(last.next(), CmdSn(0));
/// assert!(last.precedes(CmdSn(3)));
/// assert_eq!(CmdSn(3).steps_since(last), 4);
/// ```
#[macro_export]
macro_rules! serial_number {
    ($(#[$meta:meta])* $vis:vis struct $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        $vis struct $name(
            /// The number as it travels.
            pub u32,
        );

        impl $name {
            /// The one after this.
            #[inline]
            #[must_use]
            #[allow(dead_code)]
            pub const fn next(self) -> Self {
                Self(self.0.wrapping_add(1))
            }

            /// The one `steps` after this.
            #[inline]
            #[must_use]
            #[allow(dead_code)]
            pub const fn advanced_by(self, steps: u32) -> Self {
                Self(self.0.wrapping_add(steps))
            }

            /// How many steps lead from `earlier` to this, going forward.
            #[inline]
            #[must_use]
            #[allow(dead_code)]
            pub const fn steps_since(self, earlier: Self) -> u32 {
                self.0.wrapping_sub(earlier.0)
            }

            /// Whether this comes before `other` on the circle.
            #[inline]
            #[must_use]
            #[allow(dead_code)]
            pub const fn precedes(self, other: Self) -> bool {
                let steps = other.0.wrapping_sub(self.0);
                steps != 0 && steps < 1 << 31
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    serial_number! {
        struct Serial
    }

    #[test]
    fn order_survives_the_wrap() {
        assert!(Serial(u32::MAX).precedes(Serial(0)));
        assert!(Serial(u32::MAX - 5).precedes(Serial(7)));
        assert!(!Serial(0).precedes(Serial(u32::MAX)));
        assert!(!Serial(9).precedes(Serial(9)));
    }

    #[test]
    fn opposite_numbers_precede_each_other_in_neither_direction() {
        assert!(!Serial(0).precedes(Serial(1 << 31)));
        assert!(!Serial(1 << 31).precedes(Serial(0)));
    }

    proptest! {
        #[test]
        fn a_number_precedes_those_up_to_half_the_circle_ahead(
            start: u32,
            steps in 1_u32..1 << 31,
        ) {
            let start = Serial(start);
            let later = start.advanced_by(steps);
            prop_assert!(start.precedes(later));
            prop_assert!(!later.precedes(start));
            prop_assert_eq!(later.steps_since(start), steps);
        }
    }
}
