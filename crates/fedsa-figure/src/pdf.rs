//! A scene as PDF: one page with the letters that it uses embedded, and the configuration attached as a file.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::types::{CidFontType, FontFlags, LineJoinStyle, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use subsetter::GlyphRemapper;

use super::about::Provenance;
use super::point::Point;
use super::scene::{Dash, Mark, Rgb, Scene, Text};
use super::text::{Family, Typeface};

/// Points in a CSS pixel.
const POINT: f64 = 0.75;
const SYSTEM: SystemInfo = SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };

pub(super) fn render(scene: &Scene, about: &Provenance) -> Vec<u8> {
    let mut ids = (1..).map(Ref::new);
    let mut id = || ids.next().expect("without end");
    let (catalog, pages, page, content, info, file, spec) = (id(), id(), id(), id(), id(), id(), id());
    let mut drawing = Drawing::new(scene);
    scene.marks.iter().for_each(|mark| drawing.draw(mark));
    let Drawing { content: drawn, letters, opacities, .. } = drawing;

    let mut pdf = Pdf::new();
    let has_config = !about.config.is_empty();
    {
        let mut root = pdf.catalog(catalog);
        root.pages(pages);
        if has_config {
            root.names().embedded_files().names().insert(Str(b"config.toml"), spec);
        }
    }
    pdf.pages(pages).kids([page]).count(1);
    let all = [(Family::Sans, false), (Family::Sans, true), (Family::Serif, false), (Family::Serif, true)];
    let typefaces = all.map(|(family, bold)| Typeface { family, bold }).into_iter();
    let is_named = |typeface: &Typeface| typeface.family == Family::Sans || letters.contains_key(typeface);
    let fonts: BTreeMap<Typeface, Ref> = typefaces.filter(is_named).map(|typeface| (typeface, id())).collect();
    {
        let mut page = pdf.page(page);
        let size = |length: f64| (length.ceil() * POINT) as f32;
        page.media_box(Rect::new(0.0, 0.0, size(scene.width), size(scene.height)));
        page.parent(pages).contents(content);
        let mut resources = page.resources();
        {
            let mut named = resources.fonts();
            fonts.iter().filter(|(typeface, _)| letters.contains_key(typeface)).for_each(|(typeface, font)| {
                named.pair(font_name(*typeface), *font);
            });
        }
        let mut states = resources.ext_g_states();
        for (i, opacity) in opacities.iter().enumerate() {
            states
                .insert(Name(state_name(i).as_bytes()))
                .start::<pdf_writer::writers::ExtGraphicsState>()
                .non_stroking_alpha(*opacity as f32);
        }
    }
    packed(&mut pdf, content, &drawn.finish());
    for (typeface, letters) in letters {
        let ids = FontIds { font: fonts[&typeface], cid: id(), descriptor: id(), file: id(), cmap: id() };
        embed(&mut pdf, typeface, &letters, ids);
    }

    describe(&mut pdf, info, scene, about);
    if has_config {
        attach(&mut pdf, (file, spec), about);
    }
    pdf.finish()
}

/// Adds the document's title, description and program.
fn describe(pdf: &mut Pdf, info: Ref, scene: &Scene, about: &Provenance) {
    let software = Provenance::software();
    let mut about_it = pdf.document_info(info);
    about_it.title(TextStr(&super::text::clean(&scene.title))).subject(TextStr(&super::text::clean(&scene.description)));
    about_it.creator(TextStr(&software)).producer(TextStr(&software));
    if !about.id.is_empty() {
        about_it.keywords(TextStr(&super::text::clean(about.id)));
    }
    about_it.finish();
}

fn attach(pdf: &mut Pdf, (file, spec): (Ref, Ref), about: &Provenance) {
    let source = about.source();
    let source = deflated(source.as_bytes());
    pdf.embedded_file(file, &source).filter(Filter::FlateDecode);
    let mut spec = pdf.file_spec(spec);
    spec.path(Str(b"config.toml")).unic_file(TextStr("config.toml"));
    spec.insert(Name(b"EF")).dict().pair(Name(b"F"), file).pair(Name(b"UF"), file);
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing into memory cannot fail")
}

fn packed(pdf: &mut Pdf, id: Ref, bytes: &[u8]) {
    pdf.stream(id, &deflated(bytes)).filter(Filter::FlateDecode);
}

fn font_name(typeface: Typeface) -> Name<'static> {
    match (typeface.family, typeface.bold) {
        (Family::Sans, false) => Name(b"Regular"),
        (Family::Sans, true) => Name(b"Bold"),
        (Family::Serif, false) => Name(b"Serif"),
        (Family::Serif, true) => Name(b"SerifBold"),
    }
}

fn state_name(index: usize) -> String {
    format!("Opacity{index}")
}

/// The used glyphs of a font, with their new numbers and their characters.
#[derive(Default)]
struct Letters {
    remapper: GlyphRemapper,
    /// For each new number, the old number and a character.
    used: BTreeMap<u16, (u16, char)>,
}

struct Drawing {
    content: Content,
    height: f64,
    letters: BTreeMap<Typeface, Letters>,
    opacities: Vec<f64>,
}

impl Drawing {
    fn new(scene: &Scene) -> Self {
        let mut content = Content::new();
        content.transform([POINT as f32, 0.0, 0.0, POINT as f32, 0.0, 0.0]).set_line_join(LineJoinStyle::RoundJoin);
        let mut drawing = Drawing { content, height: scene.height.ceil(), letters: BTreeMap::new(), opacities: Vec::new() };
        let (width, height) = (scene.width.ceil(), scene.height.ceil());
        drawing.fill(scene.background);
        drawing.trail([(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)].into_iter());
        drawing.content.fill_nonzero();
        drawing
    }

    /// A point in page coordinates (y upwards), rounded to a hundredth of a pixel.
    fn place(&self, (x, y): Point) -> (f32, f32) {
        let short = |x: f64| ((x * 100.0).round() / 100.0) as f32;
        (short(x), short(self.height - y))
    }

    fn fill(&mut self, color: Rgb) {
        let [r, g, b] = channels(color);
        self.content.set_fill_rgb(r, g, b);
    }

    fn trail(&mut self, points: impl Iterator<Item = Point>) {
        for (i, point) in points.enumerate() {
            let (x, y) = self.place(point);
            match i {
                0 => self.content.move_to(x, y),
                _ => self.content.line_to(x, y),
            };
        }
    }

    fn draw(&mut self, mark: &Mark) {
        match mark {
            Mark::Line { points, color, width, dash: Dash { lengths, start } } => {
                let [r, g, b] = channels(*color);
                self.content.set_stroke_rgb(r, g, b).set_line_width(*width as f32);
                self.content.set_dash_pattern(lengths.iter().map(|length| *length as f32), *start as f32);
                self.trail(points.iter().copied());
                self.content.stroke();
            }
            Mark::Ribbon { edges, color, opacity } => {
                let state = self.opacities.iter().position(|known| known == opacity).unwrap_or_else(|| {
                    self.opacities.push(*opacity);
                    self.opacities.len() - 1
                });
                self.content.save_state().set_parameters(Name(state_name(state).as_bytes()));
                self.fill(*color);
                let upper = edges.iter().map(|(x, top, _)| (*x, *top));
                self.trail(upper.chain(edges.iter().rev().map(|(x, _, bottom)| (*x, *bottom))));
                self.content.close_path().fill_nonzero().restore_state();
            }
            Mark::Polygon { points, color } => {
                self.fill(*color);
                self.trail(points.iter().copied());
                self.content.close_path().fill_nonzero();
            }
            Mark::Rectangles { rectangles, color } => {
                self.fill(*color);
                for [left, top, right, bottom] in rectangles {
                    let ((x, y), (right, top)) = (self.place((*left, *bottom)), self.place((*right, *top)));
                    self.content.rect(x, y, right - x, top - y);
                }
                self.content.fill_nonzero();
            }
            Mark::Disc { center, radius, color } => {
                self.fill(*color);
                self.circle(*center, *radius as f32);
            }
            Mark::Text(text) => self.letter(text),
        }
    }

    fn circle(&mut self, center: Point, r: f32) {
        // The handles of the Bezier curve closest to a quarter circle.
        let h = 0.552_285 * r;
        let (x, y) = self.place(center);
        self.content.move_to(x + r, y);
        self.content.cubic_to(x + r, y + h, x + h, y + r, x, y + r);
        self.content.cubic_to(x - h, y + r, x - r, y + h, x - r, y);
        self.content.cubic_to(x - r, y - h, x - h, y - r, x, y - r);
        self.content.cubic_to(x + h, y - r, x + r, y - h, x + r, y);
        self.content.fill_nonzero();
    }

    fn letter(&mut self, text: &Text) {
        self.fill(text.color);
        let before = text.before();
        let ((x, y), turn) = match text.upward {
            true => (self.place((text.at.0, text.at.1 + before)), [0.0, 1.0, -1.0, 0.0]),
            false => (self.place((text.at.0 - before, text.at.1)), [1.0, 0.0, 0.0, 1.0]),
        };
        self.content.begin_text().set_text_matrix([turn[0], turn[1], turn[2], turn[3], x, y]);
        for (typeface, run) in text.font.runs(&text.text) {
            let codes = self.codes(typeface, run);
            self.content.set_font(font_name(typeface), text.font.size as f32).show(Str(&codes));
        }
        self.content.end_text();
    }

    /// The numbers of the glyphs of a text in one typeface.
    fn codes(&mut self, typeface: Typeface, text: &str) -> Vec<u8> {
        let letters = self.letters.entry(typeface).or_default();
        let mut codes = Vec::with_capacity(2 * text.len());
        for c in text.chars() {
            let old = typeface.glyph(c).0;
            let new = letters.remapper.remap(old);
            letters.used.entry(new).or_insert((old, c));
            codes.extend(new.to_be_bytes());
        }
        codes
    }
}

fn channels((r, g, b): Rgb) -> [f32; 3] {
    [r, g, b].map(|channel| (f32::from(channel) / 255.0 * 1000.0).round() / 1000.0)
}

struct FontIds {
    font: Ref,
    cid: Ref,
    descriptor: Ref,
    file: Ref,
    cmap: Ref,
}

/// Embeds the used glyphs of a font and their characters, so that the text can be searched and copied.
fn embed(pdf: &mut Pdf, typeface: Typeface, letters: &Letters, ids: FontIds) {
    let face = typeface.face();
    // Six capitals mark a subset.
    let name = match (typeface.family, typeface.bold) {
        (Family::Sans, false) => "FEDSAR+DejaVuSans",
        (Family::Sans, true) => "FEDSAB+DejaVuSans-Bold",
        (Family::Serif, false) => "FEDSAS+Tinos",
        (Family::Serif, true) => "FEDSAT+Tinos-Bold",
    };
    let per_mille = |units: i16| f32::from(units) * 1000.0 / f32::from(face.units_per_em());
    pdf.type0_font(ids.font)
        .base_font(Name(name.as_bytes()))
        .encoding_predefined(Name(b"Identity-H"))
        .descendant_font(ids.cid)
        .to_unicode(ids.cmap);
    let mut cid = pdf.cid_font(ids.cid);
    cid.subtype(CidFontType::Type2).base_font(Name(name.as_bytes())).system_info(SYSTEM).font_descriptor(ids.descriptor);
    cid.default_width(0.0).cid_to_gid_map_predefined(Name(b"Identity"));
    let mut widths = cid.widths();
    for (new, (old, _)) in &letters.used {
        widths.consecutive(*new, [(1000.0 * typeface.advance(ttf_parser::GlyphId(*old))) as f32]);
    }
    widths.finish();
    cid.finish();
    let bounds = face.global_bounding_box();
    pdf.font_descriptor(ids.descriptor)
        .name(Name(name.as_bytes()))
        .flags(FontFlags::SYMBOLIC)
        .bbox(Rect::new(per_mille(bounds.x_min), per_mille(bounds.y_min), per_mille(bounds.x_max), per_mille(bounds.y_max)))
        .italic_angle(0.0)
        .ascent(per_mille(face.ascender()))
        .descent(per_mille(face.descender()))
        .cap_height(if typeface.family == Family::Sans { 730.0 } else { 662.0 })
        .stem_v(if typeface.bold { 165.0 } else { 90.0 })
        .font_file2(ids.file);
    let subset = subsetter::subset(typeface.bytes(), 0, &letters.remapper).expect("the bundled fonts can be cut");
    let length = subset.len() as i32;
    pdf.stream(ids.file, &deflated(&subset)).filter(Filter::FlateDecode).pair(Name(b"Length1"), length);
    let mut cmap = UnicodeCmap::new(Name(b"Letters"), SYSTEM);
    letters.used.iter().for_each(|(new, (_, c))| cmap.pair(*new, *c));
    packed(pdf, ids.cmap, &cmap.finish());
}
