//! The layout of a table: a matrix of shaded cells under its column heads.

use super::chart::{MARGIN, below_picture};
use super::scene::{Anchor, Rgb, Scene};
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

/// A table with its texts in lines, and the places of its columns.
struct Layout<'a> {
    cells: Vec<Vec<(&'a TableCell, Block)>>,
    heads: Vec<Block>,
    head_height: f64,
    /// Whether heads but the first stand upright.
    upright: bool,
    lefts: Vec<f64>,
    widths: Vec<f64>,
    /// The width of all columns.
    inside: f64,
}

impl<'a> Layout<'a> {
    fn new(table: &'a CellTable, page: f64, empty: &'a TableCell) -> Self {
        let columns = table.rows.iter().map(Vec::len).chain([table.columns.len()]).max().unwrap_or(0);
        let cell = |row: &'a Vec<TableCell>, column: usize| {
            let cell = row.get(column).unwrap_or(empty);
            let widest = if column == 0 { WIDEST_NAME } else { WIDEST_CELL };
            (cell, Block::new(&cell.text, if cell.fill == Fill::Group { HEAD } else { CELL }, widest))
        };
        let cells: Vec<Vec<(&TableCell, Block)>> =
            table.rows.iter().map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect();
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
        // The longer side of a head lies along its lines.
        let sides = |column: usize| (heads[column].width, heads[column].lines.len() as f64 * HEAD.leading());
        let across = |column: usize| if stands(column) { sides(column).1 } else { sides(column).0 };
        let along = |column: usize| if stands(column) { sides(column).0 } else { sides(column).1 };
        let widths: Vec<f64> = (0..columns).map(|c| (cell_widths[c].max(across(c)) + 2.0 * PADDING).max(34.0)).collect();
        let head_height = (0..columns).map(along).fold(0.0, f64::max) + PADDING;
        let inside = widths.iter().sum::<f64>();
        let lefts = widths.iter().scan(MARGIN, |left, width| Some(std::mem::replace(left, *left + width))).collect();
        Self { cells, heads, head_height, upright, lefts, widths, inside }
    }

    /// Draws the heads of the columns, with their feet at `foot`.
    fn draw_heads(&self, scene: &mut Scene, foot: f64, colors: &Colors) {
        for (column, block) in self.heads.iter().enumerate() {
            let middle = self.lefts[column] + self.widths[column] / 2.0;
            let lines = &block.lines;
            if self.upright && column > 0 {
                let first = middle - (lines.len() as f64 * HEAD.leading()) / 2.0 + HEAD.baseline();
                for (i, line) in lines.iter().enumerate() {
                    scene.upward_text((first + i as f64 * HEAD.leading(), foot), line, HEAD, Anchor::Start, colors.ink);
                }
            } else {
                let top = foot - lines.len() as f64 * HEAD.leading();
                let (x, anchor) = if column == 0 { (self.lefts[0] + PADDING, Anchor::Start) } else { (middle, Anchor::Middle) };
                scene.paragraph((x, top), lines, HEAD, anchor, colors.ink);
            }
        }
    }

    /// Draws a row below `y`; its foot.
    fn draw_row(&self, scene: &mut Scene, row: &[(&TableCell, Block)], y: f64, colors: &Colors) -> f64 {
        let tallest = row.iter().map(|(_, block)| block.lines.len()).max().unwrap_or(0).max(1);
        let height = tallest as f64 * CELL.leading() + PADDING;
        for (column, (cell, block)) in row.iter().enumerate() {
            let (background, ink) = colors.cell(cell.fill);
            let (left, right) = (self.lefts[column], self.lefts[column] + self.widths[column]);
            if let Some(background) = background {
                scene.rectangle((left + 0.5, y + 0.5), (right - 0.5, y + height - 0.5), background);
            }
            let top = y + (height - block.lines.len() as f64 * CELL.leading()) / 2.0;
            let (x, anchor) = if column == 0 { (left + PADDING, Anchor::Start) } else { ((left + right) / 2.0, Anchor::Middle) };
            let font = if cell.fill == Fill::Group { HEAD } else { CELL };
            scene.paragraph((x, top), &block.lines, font, anchor, ink);
        }
        let foot = y + height;
        if background_free(row) {
            self.rule(scene, foot, colors.major_grid, 0.8);
        }
        foot
    }

    fn rule(&self, scene: &mut Scene, y: f64, color: Rgb, width: f64) {
        scene.line(vec![(MARGIN, y), (MARGIN + self.inside, y)], color, width);
    }
}

pub(super) fn scene(table: &CellTable, look: &RenderOptions) -> Scene {
    let colors = look.theme.colors();
    let page = look.width.unwrap_or(WIDTH);
    let empty = TableCell::default();
    let layout = Layout::new(table, page, &empty);
    let content = layout.inside.max(TITLE.width(&table.title).min(page / 2.0)).max((2.0 * page / 3.0).min(WIDTH / 2.0));
    let mut scene = Scene::new(&table.title, content + 2.0 * MARGIN, colors.background);
    let mut y = scene.paragraph((MARGIN, MARGIN), &TITLE.wrap(&table.title, content, LINES), TITLE, Anchor::Start, colors.ink);
    y += 6.0;
    layout.draw_heads(&mut scene, y + layout.head_height - PADDING / 2.0, colors);
    y += layout.head_height;
    layout.rule(&mut scene, y, colors.frame, 1.2);
    for row in &layout.cells {
        y = layout.draw_row(&mut scene, row, y, colors);
    }
    layout.rule(&mut scene, y, colors.frame, 1.2);
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
