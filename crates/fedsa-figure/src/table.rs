//! The layout of a table: a matrix of shaded cells under its column heads.

use super::chart::{MARGIN, below_picture};
use super::scene::{Anchor, Scene};
use super::style::*;
use super::text::Font;
use super::{CellTable, Fill, RenderOptions, TableCell};

const WIDTH: f64 = 900.0;
const PADDING: f64 = 7.0;
const CELL: Font = Font::regular(12.0);
const HEAD: Font = Font::bold(12.0);
const WIDEST_NAME: f64 = 230.0;
const WIDEST_CELL: f64 = 170.0;
const WIDEST_HEAD: f64 = 105.0;
const TALLEST_HEAD: f64 = 150.0;
const LINES: usize = 4;

/// A cell's text in lines, and the width they need.
struct Block {
    lines: Vec<String>,
    width: f64,
}

impl Block {
    fn new(text: &str, font: Font, width: f64) -> Block {
        let lines = font.wrap(text, width, LINES);
        let width = lines.iter().map(|line| font.width(line)).fold(0.0, f64::max);
        Block { lines, width }
    }
}

pub(super) fn scene(table: &CellTable, look: &RenderOptions) -> Scene {
    let colors = look.theme.colors();
    let page = look.width.unwrap_or(WIDTH);
    let columns = table.rows.iter().map(Vec::len).chain([table.columns.len()]).max().unwrap_or(0);
    let empty = TableCell::default();
    let cells: Vec<Vec<(&TableCell, Block)>> = table
        .rows
        .iter()
        .map(|row| {
            let cell = |column: usize| row.get(column).unwrap_or(&empty);
            let widest = |column| if column == 0 { WIDEST_NAME } else { WIDEST_CELL };
            (0..columns)
                .map(|column| {
                    (
                        cell(column),
                        Block::new(&cell(column).text, if cell(column).fill == Fill::Group { HEAD } else { CELL }, widest(column)),
                    )
                })
                .collect()
        })
        .collect();
    let cell_widths: Vec<f64> = (0..columns).map(|column| cells.iter().map(|row| row[column].1.width).fold(0.0, f64::max)).collect();

    let head = |column: usize| table.columns.get(column).map_or("", String::as_str);
    let level = |column: usize| {
        let widest = if column == 0 { WIDEST_NAME } else { cell_widths[column].max(WIDEST_HEAD) };
        Block::new(head(column), HEAD, widest)
    };
    let level_heads: Vec<Block> = (0..columns).map(level).collect();
    let level_widths: Vec<f64> = (0..columns).map(|c| cell_widths[c].max(level_heads[c].width) + 2.0 * PADDING).collect();
    // Heads stand upright where they would make the picture wider than a page.
    let upright = level_widths.iter().sum::<f64>() > page - 2.0 * MARGIN;
    let stands = |column: usize| upright && column > 0;
    let heads: Vec<Block> = level_heads
        .into_iter()
        .enumerate()
        .map(|(column, block)| if stands(column) { Block::new(head(column), HEAD, TALLEST_HEAD) } else { block })
        .collect();
    let across = |column: usize| match stands(column) {
        true => heads[column].lines.len() as f64 * HEAD.leading(),
        false => heads[column].width,
    };
    let along = |column: usize| match stands(column) {
        true => heads[column].width,
        false => heads[column].lines.len() as f64 * HEAD.leading(),
    };
    let widths: Vec<f64> = (0..columns).map(|c| (cell_widths[c].max(across(c)) + 2.0 * PADDING).max(34.0)).collect();
    let head_height = (0..columns).map(along).fold(0.0, f64::max) + PADDING;

    let inside = widths.iter().sum::<f64>();
    let content = inside.max(TITLE.width(&table.title).min(page / 2.0)).max((2.0 * page / 3.0).min(WIDTH / 2.0));
    let mut scene = Scene::new(&table.title, content + 2.0 * MARGIN, colors.background);
    let mut y = scene.paragraph((MARGIN, MARGIN), &TITLE.wrap(&table.title, content, LINES), TITLE, Anchor::Start, colors.ink);
    y += 6.0;

    let lefts: Vec<f64> = widths.iter().scan(MARGIN, |left, width| Some(std::mem::replace(left, *left + width))).collect();
    let foot = y + head_height - PADDING / 2.0;
    for (column, block) in heads.iter().enumerate() {
        let middle = lefts[column] + widths[column] / 2.0;
        let lines = &block.lines;
        if stands(column) {
            let first = middle - (lines.len() as f64 * HEAD.leading()) / 2.0 + HEAD.baseline();
            for (i, line) in lines.iter().enumerate() {
                scene.upward_text((first + i as f64 * HEAD.leading(), foot), line, HEAD, Anchor::Start, colors.ink);
            }
        } else {
            let top = foot - lines.len() as f64 * HEAD.leading();
            let (x, anchor) = if column == 0 { (lefts[0] + PADDING, Anchor::Start) } else { (middle, Anchor::Middle) };
            scene.paragraph((x, top), lines, HEAD, anchor, colors.ink);
        }
    }
    y += head_height;
    let rule = |scene: &mut Scene, y: f64, width: f64| scene.line(vec![(MARGIN, y), (MARGIN + inside, y)], colors.frame, width);
    rule(&mut scene, y, 1.2);

    for row in &cells {
        let tallest = row.iter().map(|(_, block)| block.lines.len()).max().unwrap_or(0).max(1);
        let height = tallest as f64 * CELL.leading() + PADDING;
        for (column, (cell, block)) in row.iter().enumerate() {
            let (background, ink) = colors.cell(cell.fill);
            let (left, right) = (lefts[column], lefts[column] + widths[column]);
            if let Some(background) = background {
                scene.rectangle((left + 0.5, y + 0.5), (right - 0.5, y + height - 0.5), background);
            }
            let top = y + (height - block.lines.len() as f64 * CELL.leading()) / 2.0;
            let (x, anchor) = if column == 0 { (left + PADDING, Anchor::Start) } else { ((left + right) / 2.0, Anchor::Middle) };
            let font = if cell.fill == Fill::Group { HEAD } else { CELL };
            scene.paragraph((x, top), &block.lines, font, anchor, ink);
        }
        y += height;
        if background_free(row) {
            scene.line(vec![(MARGIN, y), (MARGIN + inside, y)], colors.major_grid, 0.8);
        }
    }
    rule(&mut scene, y, 1.2);
    y = below_picture(&mut scene, y + 7.0, content, (&table.caption, &table.notes), colors);
    let told: Vec<&str> = std::iter::once(&table.caption).chain(&table.notes).map(String::as_str).filter(|s| !s.is_empty()).collect();
    scene.description = told.join(" ");
    scene.height = y + MARGIN;
    scene
}

/// Whether a row has no shades, and therefore needs a line below it.
fn background_free(row: &[(&TableCell, Block)]) -> bool {
    row.iter().all(|(cell, _)| matches!(cell.fill, Fill::None | Fill::Group))
}
