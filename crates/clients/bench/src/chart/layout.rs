//! The header above the panels: title, notes and legend, with their places.
//!
//! All lengths are in units of the layout; a picture has a whole number of pixels for each of them.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::mark::Mark;
use super::picture::{Chart, PlotError, drawing};
use super::style::{FONT, LINE_WIDTH, PANEL_HEIGHT, colour};

const WIDTH: u32 = 900;
const MARGIN: u32 = 16;

const TITLE_SIZE: u32 = 18;
const TEXT_SIZE: u32 = 13;
const TITLE_LINE: u32 = 26;
const TEXT_LINE: u32 = 20;

/// Length of the piece of line in front of a name of the legend.
const SAMPLE: u32 = 30;
const SAMPLE_GAP: u32 = 8;
/// Between two entries of the legend.
const ENTRY_GAP: u32 = 28;

/// Places of everything above the panels.
pub(super) struct Layout {
    /// How high it is.
    pub header: u32,
    height: u32,
    texts: Vec<PlacedText>,
    samples: Vec<Sample>,
}

/// A line of text.
struct PlacedText {
    x: u32,
    y: u32,
    size: u32,
    text: String,
}

/// A piece of line in the legend.
struct Sample {
    x: u32,
    y: u32,
    look: Look,
}

#[derive(Clone, Copy)]
enum Look {
    Line { colour: usize, mark: usize },
    Solid,
    Dashed,
}

impl Layout {
    /// Finds a place for everything.
    pub fn new(chart: &Chart) -> Result<Self, PlotError> {
        use_own_font();
        let mut layout = Self {
            header: MARGIN,
            height: 0,
            texts: Vec::new(),
            samples: Vec::new(),
        };
        for line in wrapped(&chart.title, TITLE_SIZE)? {
            layout.line(line, TITLE_SIZE, TITLE_LINE);
        }
        for note in &chart.notes {
            for line in wrapped(note, TEXT_SIZE)? {
                layout.line(line, TEXT_SIZE, TEXT_LINE);
            }
        }
        layout.legend(chart)?;
        let panels = u32::try_from(chart.panels.len()).map_err(drawing)?;
        layout.height = layout.header + PANEL_HEIGHT * panels;
        Ok(layout)
    }

    /// Width and height with so many pixels for each unit.
    pub fn size(&self, scale: u32) -> (u32, u32) {
        (WIDTH * scale, self.height * scale)
    }

    fn line(&mut self, text: String, size: u32, height: u32) {
        self.texts.push(PlacedText {
            x: MARGIN,
            y: self.header,
            size,
            text,
        });
        self.header += height;
    }

    fn legend(&mut self, chart: &Chart) -> Result<(), PlotError> {
        let mut entries: Vec<(String, Look)> = Vec::new();
        for line in chart.panels.iter().flat_map(|panel| &panel.lines) {
            let is_new = entries.iter().all(|(name, _)| *name != line.name);
            if !line.dashed && !line.name.is_empty() && is_new {
                let (colour, mark) = (line.colour, line.mark);
                entries.push((line.name.clone(), Look::Line { colour, mark }));
            }
        }
        if let Some((solid, dashed)) = chart.dashed {
            entries.push((solid.to_owned(), Look::Solid));
            entries.push((dashed.to_owned(), Look::Dashed));
        }
        if entries.is_empty() {
            return Ok(());
        }
        self.header += 4;
        let mut x = MARGIN;
        for (name, look) in entries {
            let room = WIDTH - 2 * MARGIN - SAMPLE - SAMPLE_GAP;
            let name = shortened(&name, room)?;
            let width = SAMPLE + SAMPLE_GAP + text_width(&name, TEXT_SIZE)?;
            if x > MARGIN && x + width > WIDTH - MARGIN {
                x = MARGIN;
                self.header += TEXT_LINE;
            }
            let y = self.header;
            self.samples.push(Sample { x, y, look });
            self.texts.push(PlacedText {
                x: x + SAMPLE + SAMPLE_GAP,
                y,
                size: TEXT_SIZE,
                text: name,
            });
            x += width + ENTRY_GAP;
        }
        self.header += TEXT_LINE + 4;
        Ok(())
    }

    /// Draws all that stands above the panels.
    pub fn draw<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        scale: u32,
    ) -> Result<(), PlotError> {
        let pixels = |units: u32| i32::try_from(units * scale).map_err(drawing);
        for place in &self.texts {
            let style = TextStyle::from((FONT, place.size * scale).into_font()).color(&BLACK);
            let at = (pixels(place.x)?, pixels(place.y)?);
            area.draw_text(&place.text, &style, at).map_err(drawing)?;
        }
        for sample in &self.samples {
            let y = pixels(sample.y + TEXT_SIZE / 2 - 1)?;
            let (left, right) = (pixels(sample.x)?, pixels(sample.x + SAMPLE)?);
            let black = BLACK.stroke_width(LINE_WIDTH * scale);
            let path = |from, to, style| PathElement::new([(from, y), (to, y)], style);
            match sample.look {
                Look::Solid => area.draw(&path(left, right, black)),
                Look::Dashed => {
                    for dash in (0..SAMPLE).step_by(10) {
                        let from = left + pixels(dash)?;
                        let dash = path(from, from + pixels(6)?, black);
                        area.draw(&dash).map_err(drawing)?;
                    }
                    Ok(())
                }
                Look::Line {
                    colour: number,
                    mark,
                } => {
                    let colour = colour(number);
                    let style = colour.stroke_width(LINE_WIDTH * scale);
                    area.draw(&path(left, right, style)).map_err(drawing)?;
                    area.draw(&Mark::new(
                        (i32::midpoint(left, right), y),
                        mark,
                        colour,
                        scale,
                    ))
                }
            }
            .map_err(drawing)?;
        }
        Ok(())
    }
}

pub(super) fn use_own_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let registered = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        assert!(registered.is_ok(), "the font is part of the program");
    });
}

fn text_width(text: &str, size: u32) -> Result<u32, PlotError> {
    use_own_font();
    let measured = (FONT, size).into_font().box_size(text).map_err(drawing)?;
    Ok(measured.0)
}

/// A text in lines that fit: broken at spaces, and within a word where that is too long for a line.
fn wrapped(text: &str, size: u32) -> Result<Vec<String>, PlotError> {
    let room = WIDTH - 2 * MARGIN;
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let together = if line.is_empty() {
            word.to_owned()
        } else {
            format!("{line} {word}")
        };
        if text_width(&together, size)? <= room {
            line = together;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for letter in word.chars() {
            line.push(letter);
            if text_width(&line, size)? > room {
                line.pop();
                lines.push(std::mem::replace(&mut line, letter.to_string()));
            }
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    Ok(lines)
}

/// A name that fits: of one that is too long, the beginning and the end, which differ the most.
fn shortened(name: &str, room: u32) -> Result<String, PlotError> {
    let letters: Vec<char> = name.chars().collect();
    let mut kept = letters.len();
    let mut text = name.to_owned();
    while text_width(&text, TEXT_SIZE)? > room && kept > 2 {
        kept -= 1;
        let (head, tail) = (kept.div_ceil(2), kept / 2);
        let head: String = letters[..head].iter().collect();
        let tail: String = letters[letters.len() - tail..].iter().collect();
        text = format!("{head}…{tail}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Line;

    const URL: &str = "iscsi://192.0.2.7:3260/iqn.2026-11.com.example:a-long-name-of-a-target/0";

    /// Every text, and whether it ends within the picture.
    fn all_fits(layout: &Layout) -> bool {
        layout.texts.iter().all(|place| {
            place.x + text_width(&place.text, place.size).unwrap() <= WIDTH
                && place.y + place.size <= layout.header
        })
    }

    #[test]
    fn a_long_title_takes_more_lines_and_loses_nothing() {
        let title = format!("{} {URL} against {URL}", URL.repeat(3));
        let chart = Chart {
            title: title.clone(),
            ..Chart::default()
        };
        let layout = Layout::new(&chart).unwrap();
        assert!(layout.texts.len() > 3 && all_fits(&layout));
        let shown: String = layout
            .texts
            .iter()
            .map(|place| place.text.as_str())
            .collect();
        assert_eq!(shown.replace(' ', ""), title.replace(' ', ""));
    }

    #[test]
    fn the_legend_names_every_line_once_within_the_picture() {
        let line = |number: usize| Line {
            name: format!("{number}: {URL}"),
            colour: number,
            points: vec![(1.0, 1.0), (2.0, 2.0)],
            ..Line::default()
        };
        let panel = || crate::chart::tests::panel((0..4).map(line).collect());
        let chart = Chart {
            panels: vec![panel(), panel()],
            dashed: Some(("median", "99th percentile")),
            ..Chart::default()
        };
        let layout = Layout::new(&chart).unwrap();
        assert_eq!(layout.samples.len(), 6);
        assert!(all_fits(&layout));
    }

    #[test]
    fn a_name_that_is_too_long_keeps_its_ends() {
        let name = format!("1: {}", URL.repeat(4));
        let text = shortened(&name, 400).unwrap();
        assert!(text.starts_with("1: iscsi://") && text.ends_with("/0") && text.contains('…'));
        assert!(text_width(&text, TEXT_SIZE).unwrap() <= 400);
    }
}
