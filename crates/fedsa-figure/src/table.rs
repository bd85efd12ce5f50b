//! The layout of a table: a matrix of shaded cells under its column heads.

use super::chart::below_picture;
use super::scene::{Anchor, Rgb, Scene};
use super::sheet::Sheet;
use super::text::Font;
use super::{CellTable, Fill, RenderOptions, TableCell};

const WIDTH: f64 = 900.0;
const PADDING: f64 = 7.0;
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

/// A table with its texts in lines, and the positions of its columns.
struct Layout<'a> {
    sheet: Sheet,
    cells: Vec<Vec<(&'a TableCell, Block)>>,
    heads: Vec<Block>,
    head_height: f64,
    /// Whether heads except the first stand upright.
    upright: bool,
    lefts: Vec<f64>,
    widths: Vec<f64>,
    /// The width of all columns.
    inside: f64,
}

impl<'a> Layout<'a> {
    fn new(table: &'a CellTable, page: f64, empty: &'a TableCell, sheet: Sheet) -> Self {
        let (body, bold, margin) = (sheet.fonts.cell, sheet.fonts.head, sheet.margin);
        let columns = table.rows.iter().map(Vec::len).chain([table.columns.len()]).max().unwrap_or(0);
        let cell = |row: &'a Vec<TableCell>, column: usize| {
            let cell = row.get(column).unwrap_or(empty);
            let widest = if column == 0 { WIDEST_NAME } else { WIDEST_CELL };
            (cell, Block::new(&cell.text, if cell.fill == Fill::Group { bold } else { body }, widest))
        };
        let cells: Vec<Vec<(&TableCell, Block)>> =
            table.rows.iter().map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect();
        let cell_widths: Vec<f64> = (0..columns).map(|column| cells.iter().map(|row| row[column].1.width).fold(0.0, f64::max)).collect();

        let head = |column: usize| table.columns.get(column).map_or("", String::as_str);
        let level = |column: usize| {
            let widest = if column == 0 { WIDEST_NAME } else { cell_widths[column].max(WIDEST_HEAD) };
            Block::new(head(column), bold, widest)
        };
        let level_heads: Vec<Block> = (0..columns).map(level).collect();
        let level_widths: Vec<f64> = (0..columns).map(|c| cell_widths[c].max(level_heads[c].width) + 2.0 * PADDING).collect();
        // Heads stand upright if they would otherwise make the picture wider than a page.
        let upright = level_widths.iter().sum::<f64>() > page - 2.0 * margin;
        let stands = |column: usize| upright && column > 0;
        let heads: Vec<Block> = level_heads
            .into_iter()
            .enumerate()
            .map(|(column, block)| if stands(column) { Block::new(head(column), bold, TALLEST_HEAD) } else { block })
            .collect();
        // The longer side of a head lies along its lines.
        let sides = |column: usize| (heads[column].width, heads[column].lines.len() as f64 * bold.leading());
        let across = |column: usize| if stands(column) { sides(column).1 } else { sides(column).0 };
        let along = |column: usize| if stands(column) { sides(column).0 } else { sides(column).1 };
        let widths: Vec<f64> = (0..columns).map(|c| (cell_widths[c].max(across(c)) + 2.0 * PADDING).max(34.0)).collect();
        let head_height = (0..columns).map(along).fold(0.0, f64::max) + PADDING;
        let inside = widths.iter().sum::<f64>();
        let lefts = widths.iter().scan(margin, |left, width| Some(std::mem::replace(left, *left + width))).collect();
        Self { sheet, cells, heads, head_height, upright, lefts, widths, inside }
    }

    /// Draws the heads of the columns, with their lower ends at `foot`.
    fn draw_heads(&self, scene: &mut Scene, foot: f64) {
        let colors = self.sheet.colors;
        for (column, block) in self.heads.iter().enumerate() {
            let middle = self.lefts[column] + self.widths[column] / 2.0;
            let lines = &block.lines;
            if self.upright && column > 0 {
                let first = middle - (lines.len() as f64 * self.sheet.fonts.head.leading()) / 2.0 + self.sheet.fonts.head.baseline();
                for (i, line) in lines.iter().enumerate() {
                    scene.upward_text(
                        (first + i as f64 * self.sheet.fonts.head.leading(), foot),
                        line,
                        self.sheet.fonts.head,
                        Anchor::Start,
                        colors.ink,
                    );
                }
            } else {
                let top = foot - lines.len() as f64 * self.sheet.fonts.head.leading();
                let (x, anchor) = if column == 0 { (self.lefts[0] + PADDING, Anchor::Start) } else { (middle, Anchor::Middle) };
                scene.paragraph((x, top), lines, self.sheet.fonts.head, anchor, colors.ink);
            }
        }
    }

    /// Draws a row below `y`; returns the y at which it ends.
    fn draw_row(&self, scene: &mut Scene, row: &[(&TableCell, Block)], y: f64) -> f64 {
        let colors = self.sheet.colors;
        let tallest = row.iter().map(|(_, block)| block.lines.len()).max().unwrap_or(0).max(1);
        let height = tallest as f64 * self.sheet.fonts.cell.leading() + PADDING;
        for (column, (cell, block)) in row.iter().enumerate() {
            let (background, ink) = colors.cell(cell.fill);
            let (left, right) = (self.lefts[column], self.lefts[column] + self.widths[column]);
            if let Some(background) = background {
                scene.rectangle((left + 0.5, y + 0.5), (right - 0.5, y + height - 0.5), background);
            }
            let top = y + (height - block.lines.len() as f64 * self.sheet.fonts.cell.leading()) / 2.0;
            let (x, anchor) = if column == 0 { (left + PADDING, Anchor::Start) } else { ((left + right) / 2.0, Anchor::Middle) };
            let font = if cell.fill == Fill::Group { self.sheet.fonts.head } else { self.sheet.fonts.cell };
            scene.paragraph((x, top), &block.lines, font, anchor, ink);
        }
        let foot = y + height;
        if background_free(row) {
            self.rule(scene, foot, colors.major_grid, 0.8);
        }
        foot
    }

    fn rule(&self, scene: &mut Scene, y: f64, color: Rgb, width: f64) {
        scene.line(vec![(self.sheet.margin, y), (self.sheet.margin + self.inside, y)], color, width);
    }
}

pub(super) fn scene(table: &CellTable, look: &RenderOptions) -> Scene {
    let sheet = Sheet::of(look);
    let (colors, font, margin) = (sheet.colors, sheet.fonts.title, sheet.margin);
    let page = sheet.width.unwrap_or(WIDTH);
    let title = sheet.title(&table.title);
    let empty = TableCell::default();
    let layout = Layout::new(table, page, &empty, sheet);
    let content = layout.inside.max(font.width(title).min(page / 2.0)).max((2.0 * page / 3.0).min(WIDTH / 2.0));
    let mut scene = sheet.blank(&table.title, content + 2.0 * margin);
    let mut y = scene.paragraph((margin, margin), &font.wrap(title, content, LINES), font, Anchor::Start, colors.ink);
    y += 6.0;
    layout.draw_heads(&mut scene, y + layout.head_height - PADDING / 2.0);
    y += layout.head_height;
    layout.rule(&mut scene, y, colors.frame, 1.2);
    for row in &layout.cells {
        y = layout.draw_row(&mut scene, row, y);
    }
    layout.rule(&mut scene, y, colors.frame, 1.2);
    y = below_picture(&mut scene, y + 7.0, content, sheet.below(&table.caption, &table.notes), &sheet);
    let told: Vec<&str> = std::iter::once(&table.caption).chain(&table.notes).map(String::as_str).filter(|s| !s.is_empty()).collect();
    scene.description = told.join(" ");
    scene.height = y + margin;
    sheet.fitted(scene)
}

/// Whether a row has no shades, and therefore needs a line below it.
fn background_free(row: &[(&TableCell, Block)]) -> bool {
    row.iter().all(|(cell, _)| matches!(cell.fill, Fill::None | Fill::Group))
}
