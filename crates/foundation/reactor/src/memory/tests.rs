use proptest::prelude::*;

use super::*;

fn contents(region: &SharedRegion, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    region.copy_out(offset, &mut bytes);
    bytes
}

#[test]
fn new_region_is_zero_and_unmapped() {
    let region = SharedRegion::new(10_000).unwrap();
    assert_eq!(contents(&region, 0, 10_000), vec![0; 10_000]);
    let extent = region.extent(0, 10_000);
    assert_eq!(
        extent,
        RegionExtent {
            length_bytes: 10_000,
            mapped: false
        }
    );
    assert_eq!((region.len_bytes(), region.mapped_bytes()), (10_000, 0));
}

#[test]
fn written_bytes_are_read_back_at_any_alignment() {
    let region = SharedRegion::new(1 << 16).unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(9001).collect();
    for offset in [0, 1, 7, 8, 4095, 4096, (1 << 16) - 9001] {
        region.copy_in(offset, &bytes);
        assert_eq!(contents(&region, offset, 9001), bytes);
    }
}

#[test]
fn extents_follow_written_pages() {
    let region = SharedRegion::new(1 << 20).unwrap();
    region.copy_in(8192 + 100, &[1; 4096]);
    assert_eq!(
        region.extent(0, 1 << 20),
        RegionExtent {
            length_bytes: 8192,
            mapped: false
        }
    );
    assert_eq!(
        region.extent(8192, 1 << 19),
        RegionExtent {
            length_bytes: 8192,
            mapped: true
        }
    );
    assert_eq!(
        region.extent(8704, 512),
        RegionExtent {
            length_bytes: 512,
            mapped: true
        }
    );
    let rest = RegionExtent {
        length_bytes: (1 << 20) - 16384,
        mapped: false,
    };
    assert_eq!(region.extent(16384, (1 << 20) - 16384), rest);
    assert_eq!(
        region.extent(1 << 20, 0),
        RegionExtent {
            length_bytes: 0,
            mapped: false
        }
    );
}

#[test]
fn discarded_whole_pages_are_unmapped_and_partial_ones_zeroed() {
    let region = SharedRegion::new(5 * 4096).unwrap();
    region.copy_in(0, &[7; 5 * 4096]);
    region.discard(4000, 8400);
    assert_eq!(contents(&region, 0, 4000), [7; 4000]);
    assert_eq!(contents(&region, 4000, 8400), [0; 8400]);
    assert_eq!(
        contents(&region, 12_400, 5 * 4096 - 12_400),
        vec![7; 5 * 4096 - 12_400]
    );
    assert!(region.extent(0, 4096).mapped);
    assert_eq!(
        region.extent(4096, 16384),
        RegionExtent {
            length_bytes: 8192,
            mapped: false
        }
    );
    assert_eq!(region.mapped_bytes(), 3 * 4096);
}

#[test]
fn discard_up_to_an_end_within_a_page_unmaps_that_page() {
    let region = SharedRegion::new(4096 + 512).unwrap();
    region.copy_in(0, &[7; 4608]);
    region.discard(4096, 512);
    assert_eq!(region.mapped_bytes(), 4096);
    assert_eq!(contents(&region, 4096, 512), [0; 512]);
}

#[test]
fn discard_gives_memory_back() {
    const LEN: usize = 64 << 20;
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    };
    let region = SharedRegion::new(LEN as u64).unwrap();
    let before = resident();
    region.copy_in(0, &vec![1; LEN]);
    let full = resident();
    assert!(full > before + LEN / 2, "{before} {full}");
    region.discard(0, LEN as u64);
    assert!(resident() < full - LEN / 2);
}

#[test]
fn a_terabyte_costs_nothing_until_it_is_written() {
    let region = SharedRegion::new(1 << 40).unwrap();
    region.copy_in((1 << 40) - 512, &[3; 512]);
    assert_eq!(contents(&region, (1 << 40) - 512, 512), [3; 512]);
    assert_eq!(region.mapped_bytes(), 4096);
}

#[test]
#[should_panic(expected = "range lies within the region")]
fn range_beyond_the_end_is_a_bug() {
    SharedRegion::new(4096).unwrap().copy_in(4000, &[0; 97]);
}

#[test]
fn racing_threads_tear_data_at_worst() {
    let region = SharedRegion::new(1 << 16).unwrap();
    std::thread::scope(|scope| {
        for value in 1..=2_u8 {
            let region = &region;
            scope.spawn(move || {
                for _ in 0..2000 {
                    region.copy_in(0, &[value; 5000]);
                    region.discard(0, 8192);
                    let read = contents(region, 0, 5000);
                    assert!(read.iter().all(|byte| *byte <= 2));
                }
            });
        }
    });
    region.discard(0, 1 << 16);
    assert_eq!(region.mapped_bytes(), 0);
    assert_eq!(contents(&region, 0, 1 << 16), vec![0; 1 << 16]);
}

#[test]
fn bytes_never_hide_behind_a_clear_bit() {
    let region = SharedRegion::new(4096).unwrap();
    for _ in 0..300 {
        std::thread::scope(|scope| {
            scope.spawn(|| region.copy_in(0, &[1; 4096]));
            scope.spawn(|| region.discard(0, 4096));
        });
        if contents(&region, 0, 4096).iter().any(|byte| *byte != 0) {
            assert!(region.extent(0, 4096).mapped);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Does what a plain array does.
    #[test]
    fn behaves_like_an_array(
        len in 1..40_000_usize,
        steps in proptest::collection::vec((0..40_000_usize, 0..20_000_usize, any::<Option<u8>>()), 0..30),
    ) {
        let region = SharedRegion::new(len as u64).unwrap();
        let mut model = vec![0; len];
        for (start, count, value) in steps {
            let start = start % len;
            let end = len.min(start + count);
            match value {
                Some(value) => region.copy_in(start as u64, &vec![value; end - start]),
                None => region.discard(start as u64, (end - start) as u64),
            }
            model[start..end].fill(value.unwrap_or(0));
            prop_assert_eq!(&contents(&region, 0, len), &model);
            let mut at = 0;
            while at < len {
                let extent = region.extent(at as u64, (len - at) as u64);
                let next = at + usize::try_from(extent.length_bytes).unwrap();
                prop_assert!(next > at);
                prop_assert!(extent.mapped || model[at..next].iter().all(|byte| *byte == 0));
                at = next;
            }
        }
    }
}
