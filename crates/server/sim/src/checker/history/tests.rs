use super::*;
use crate::stamp::fill;

fn history() -> History {
    History::new(0, 4)
}

fn content(id: u64) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    if id != 0 {
        fill(&mut bytes, 0, WriteId(id), Pattern::Placed);
    }
    bytes
}

fn begin(history: &mut History, id: u64) {
    history.begin_write(WriteId(id), 0..1, Pattern::Placed);
}

fn write(history: &mut History, id: u64) {
    begin(history, id);
    history.write_done(WriteId(id), false);
}

fn read(history: &mut History, id: u64) -> bool {
    let start = history.begin_read();
    history.read_done(start, 0, &content(id)).is_ok()
}

fn image(id: u64) -> Vec<u8> {
    let mut image = content(id);
    image.resize(4 * SECTOR, 0);
    image
}

#[test]
fn read_returns_the_last_acknowledged_write() {
    let mut history = history();
    assert!(read(&mut history, 0));
    write(&mut history, 1);
    write(&mut history, 2);
    assert!(!read(&mut history, 1));
    assert!(!read(&mut history, 0));
    assert!(read(&mut history, 2));
}

#[test]
fn read_may_return_either_side_of_a_concurrent_write_but_not_go_back() {
    let mut history = history();
    write(&mut history, 1);
    begin(&mut history, 2);
    assert!(read(&mut history, 1));
    assert!(read(&mut history, 2));
    history.write_done(WriteId(2), false);
    assert!(!read(&mut history, 1));
}

#[test]
fn aborted_write_may_not_land_after_its_end() {
    let mut history = history();
    begin(&mut history, 1);
    history.write_over(WriteId(1));
    write(&mut history, 2);
    assert!(!read(&mut history, 1));
    assert!(read(&mut history, 2));
}

#[test]
fn unanswered_write_may_land_at_any_time() {
    let mut history = history();
    begin(&mut history, 1);
    write(&mut history, 2);
    assert!(read(&mut history, 2));
    assert!(read(&mut history, 1));
}

#[test]
fn write_seen_in_full_does_not_come_back_after_it_was_overwritten() {
    let mut history = history();
    begin(&mut history, 1);
    assert!(read(&mut history, 1));
    write(&mut history, 2);
    assert!(!read(&mut history, 1));
}

#[test]
fn sector_from_two_writes_is_refused_when_one_of_them_was_over() {
    let mut history = history();
    write(&mut history, 1);
    write(&mut history, 2);
    let mut mixed = content(2);
    mixed[..16].copy_from_slice(&content(1)[..16]);
    let start = history.begin_read();
    assert!(history.read_done(start, 0, &mixed).is_err());
}

#[test]
fn flushed_write_survives_a_power_cut() {
    let mut history = history();
    write(&mut history, 1);
    let flush = history.begin_read();
    history.flush_done(flush);
    write(&mut history, 2);
    assert!(history.power_cut(&image(0)).is_err());
}

#[test]
fn unflushed_write_may_be_lost() {
    let mut history = history();
    write(&mut history, 1);
    history.power_cut(&image(0)).unwrap();
    assert!(!read(&mut history, 1));
    assert!(read(&mut history, 0));
}

#[test]
fn flush_says_nothing_of_writes_under_way() {
    let mut history = history();
    begin(&mut history, 1);
    let flush = history.begin_read();
    history.write_done(WriteId(1), false);
    history.flush_done(flush);
    history.power_cut(&image(0)).unwrap();
}

#[test]
fn fua_write_survives_a_power_cut() {
    let mut history = history();
    begin(&mut history, 1);
    history.write_done(WriteId(1), true);
    assert!(history.power_cut(&image(0)).is_err());
}

#[test]
fn compare_and_write_has_one_winner() {
    let mut history = history();
    write(&mut history, 1);
    let expected = [Pattern::Placed.stamp(WriteId(1), 0)];
    begin(&mut history, 2);
    begin(&mut history, 3);
    let (second, third) = (history.begin_read(), history.begin_read());
    history
        .compare_won(WriteId(2), second, &expected, false)
        .unwrap();
    assert!(matches!(
        history.compare_won(WriteId(3), third, &expected, false),
        Err(Violation::TwoWinners { .. })
    ));
}

#[test]
fn write_that_a_compare_did_not_see_came_after_it() {
    let mut history = history();
    write(&mut history, 1);
    let expected = [Pattern::Placed.stamp(WriteId(1), 0)];
    begin(&mut history, 2);
    let start = history.begin_read();
    begin(&mut history, 3);
    history.write_done(WriteId(3), false);
    history
        .compare_won(WriteId(2), start, &expected, false)
        .unwrap();
    assert!(!read(&mut history, 2), "the update of 3 would be lost");
    assert!(read(&mut history, 3));
}

#[test]
fn miscompare_needs_a_difference() {
    let mut history = history();
    write(&mut history, 1);
    let expected = [Pattern::Placed.stamp(WriteId(1), 0)];
    begin(&mut history, 2);
    let start = history.begin_read();
    assert_eq!(
        history.compare_lost(WriteId(2), start, &expected),
        Err(Violation::FalseMiscompare { unit: 0, sector: 0 })
    );
}

#[test]
fn killed_process_loses_nothing_that_was_acknowledged() {
    let mut history = history();
    write(&mut history, 1);
    history.process_killed(&image(1)).unwrap();
    assert!(history.process_killed(&image(0)).is_err());
}

#[test]
fn compare_tells_what_was_there() {
    let mut history = history();
    write(&mut history, 1);
    write(&mut history, 2);
    let stamps = [1, 2].map(|id| [Pattern::Placed.stamp(WriteId(id), 0)]);
    let mut compare = |stamps, matched| {
        let start = history.begin_read();
        if matched {
            history.compare_matched(start, 0, stamps)
        } else {
            history.compare_differed(start, 0, stamps)
        }
    };
    assert!(compare(&stamps[1], true).is_ok());
    assert!(compare(&stamps[0], true).is_err());
    assert!(compare(&stamps[0], false).is_ok());
    assert!(compare(&stamps[1], false).is_err());
}

#[test]
fn what_is_copied_keeps_its_stamps() {
    let mut history = history();
    write(&mut history, 1);
    let stamp = history.certain(0).unwrap();
    history.begin_copy(WriteId(2), 2, &[stamp]);
    assert_eq!(history.certain(2), None, "the copy is under way");
    history.write_done(WriteId(2), false);
    assert_eq!(history.certain(2), Some(stamp));
    let start = history.begin_read();
    assert!(history.read_done(start, 2, &content(1)).is_ok());
    let start = history.begin_read();
    assert!(history.read_done(start, 2, &content(0)).is_err());
}

#[test]
fn nothing_is_certain_while_a_write_may_still_land() {
    let mut history = history();
    begin(&mut history, 1);
    write(&mut history, 2);
    assert_eq!(history.certain(0), None);
    history.write_over(WriteId(1));
    write(&mut history, 3);
    assert_eq!(
        history.certain(0),
        Some(Pattern::Placed.stamp(WriteId(3), 0))
    );
}
