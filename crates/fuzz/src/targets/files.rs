//! Files of numbers: CSV, Parquet, traces of delays, JSON.

use std::sync::Arc;

use fedsa::error::Result;
use fedsa::uplink::stage::delay::{MAX_DELAY, Row};
use fedsa_data::linear_model::LinearModel;
use fedsa_data::table::{self, Cells, Table, TableForm};
use fedsa_data::trace::{Trace, TraceColumn};
use fedsa_data::weights::{self, FittedModel};
use fedsa_data::{delays, find, logs, theta_from_json, trace};
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::{BadRows, LogForm};
use fedsa_problems::logs::source::Inputs;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{BoolType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::proportional;
use crate::{Corpus, Target, Verdict, refused};

/// The memory that a reader of packed files may use: what some kilobytes unpack to at most, with room.
pub(super) const fn expanding(_len: usize) -> usize {
    1 << 30
}

// ---------------------------------------------------------------------------------------------
// Logs

/// Logs in CSV.
pub const CSV: Target =
    Target { name: "csv", about: "logs of transitions in CSV", corpora: csv_corpora, run: read_csv, memory: proportional };

fn csv_corpora() -> Vec<Corpus> {
    let seeds = [
        "s_0,next_0,reward,done\n0.5,1,2,0\n1,-2e3,0.25,1\n",
        "episode,s_b,s_a,action,next_a,next_b,reward,done\r\n0, 1.5,2,0,3,4.25,-1,False\r\n1,-1e-3,0,1,5,6,0.5,TRUE\r\n",
        "s_0,next_0,reward,done,ratio\n0.5,1,2,0,0.25\n1,2,1,0,1e3\n",
        "phi_2,phi_next_1,s_0,reward,done,phi_1,phi_next_2\n0.5,1,2,0,0,3,4\n1,2,1,0,1,1e3,7\n",
        "\u{feff}\"s_0\",\"next_0\",\"reward\",\"done\",\"a \"\"b\"\"\"\n1,2,3,false,\"x, y\nz\"\n",
        "s_0\tnext_0\trewards\tterminals\ttimeouts\n0\t1\t0.5\tFalse\tTrue\n1\t2\t-1\tTrue\tFalse\n",
    ];
    let words = [
        "s_0",
        "s_1",
        "next_0",
        "next_1",
        "phi_1",
        "phi_next_1",
        "truncated",
        "terminated",
        "\t",
        "reward",
        "done",
        "episode",
        "ratio",
        "true",
        "false",
        "NaN",
        "inf",
        "1e400",
        "\"",
        "\"\"",
        ",",
        "\n",
    ];
    vec![Corpus::text(seeds, &words)]
}

/// The inputs of which the bytes have columns, features before states.
fn read_log(data: &[u8], read: fn(Vec<u8>, Inputs) -> Result<Log>) -> Result<(Log, Inputs)> {
    let features = read(data.to_vec(), Inputs::Features).map(|log| (log, Inputs::Features));
    features.or_else(|e| {
        refused(&e);
        Ok((read(data.to_vec(), Inputs::States)?, Inputs::States))
    })
}

fn read_csv(data: &[u8]) -> Verdict {
    let (log, inputs) = match read_log(data, logs::from_csv) {
        Ok(read) => read,
        Err(e) => return refused(&e),
    };
    check_log(&log);
    // What was read is read again from what is written of it.
    let k = log.columns.len();
    let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
    let mut names: Vec<String> = log.columns.iter().map(quoted).collect();
    let (state, next) = inputs.prefixes();
    names.extend(log.columns.iter().map(|name| quoted(&name.replacen(state, next, 1))));
    names.extend(["reward", "done"].map(String::from));
    names.extend(log.truncated.is_some().then(|| "truncated".to_string()));
    names.extend(log.episode.is_some().then(|| "episode".to_string()));
    names.extend(log.ratio.is_some().then(|| "ratio".to_string()));
    let mut text = names.join(",");
    for i in 0..log.len() {
        let numbers = log.states[i * k..][..k].iter().chain(&log.next[i * k..][..k]).map(|x| format!("{x:?}"));
        let mut fields: Vec<String> = numbers.collect();
        fields.extend([format!("{:?}", log.rewards[i]), log.done[i].to_string()]);
        fields.extend(log.truncated.as_ref().map(|truncated| truncated[i].to_string()));
        fields.extend(log.episode.as_ref().map(|episode| episode[i].to_string()));
        fields.extend(log.ratio.as_ref().map(|ratio| format!("{:?}", ratio[i])));
        text += "\n";
        text += &fields.join(",");
    }
    assert_eq!(logs::from_csv(text.clone().into(), inputs).as_ref(), Ok(&log), "{text}");
    Verdict::Accepted
}

fn check_log(log: &Log) {
    let (n, k) = (log.len(), log.columns.len());
    assert!(n >= 1 && k >= 1 && log.states.len() == n * k && log.next.len() == n * k && log.done.len() == n);
    assert!(log.states.iter().chain(&log.next).chain(&log.rewards).all(|x| x.is_finite()));
    assert!(log.ratio.iter().flatten().all(|rho| rho.is_finite() && *rho >= 0.0));
    assert!(log.effective_size().is_none_or(|size| (0.0..=1.000_001 * n as f64).contains(&size)));
}

/// Logs whose rows are put into another order, or left out.
pub const LOG_FORMS: Target = Target {
    name: "log-forms",
    about: "logs of several agents and environments in text, packed or not",
    corpora: forms_corpora,
    run: read_forms,
    memory: expanding,
};

fn forms_corpora() -> Vec<Corpus> {
    let text = "who,env,episode,x_0,y_0,reward,done,truncated\na,0,0,0,1,1,0,0\nb,0,0,5,6,1,0,0\na,1,0,1,2,1,0,1\na,0,0,1,2,1,1,0\nb,0,0,6,7,1,1,0\n\
                a,0,1,2,0,0,0,0\na,0,1,0,1,1,0,0\nb,0,1,x,1,1,0\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).expect("memory");
    let packed = vec![gzip.finish().expect("memory"), zstd::encode_all(text.as_bytes(), 3).expect("memory")];
    let words = ["who", "env", "episode", "x_0", "y_0", "reward", "done", "a", "b", "0", "1", "nan", "\"", ",", "\t", "\n"];
    vec![Corpus::text([text], &words), Corpus::bytes(packed)]
}

fn read_forms(data: &[u8]) -> Verdict {
    let columns = [("s_*", "x_*"), ("next_*", "y_*")].map(|(name, field)| (name.to_string(), field.to_string()));
    // What is made of the form of the seeds, in which a row cannot be read; the others are to end without a panic.
    let mut verdict = None;
    for (agent, bad_rows) in [(Some("who".to_string()), BadRows::Skip), (None, BadRows::Skip), (Some("who".to_string()), BadRows::Refuse)] {
        let form = LogForm::default().with_columns(columns.clone().into()).with_agent_column(agent).with_bad_rows(bad_rows);
        let of_form = match logs::from_form(data.to_vec(), &form) {
            Ok(all) => {
                assert!(!all.is_empty());
                all.iter().for_each(check_log);
                Verdict::Accepted
            }
            Err(e) => refused(&e),
        };
        verdict.get_or_insert(of_form);
    }
    verdict.expect("three forms")
}

/// Logs in Parquet.
pub const PARQUET: Target =
    Target { name: "parquet", about: "logs of transitions in Parquet", corpora: parquet_corpora, run: read_parquet, memory: expanding };

/// A log with a column of every type that logs may have.
fn parquet_log(compression: Compression, version: WriterVersion, dictionary: bool, encoding: Option<Encoding>) -> Vec<u8> {
    let schema = "message log { required double s_0; optional double next_0; required float s_1; required float next_1;
        required int32 s_2; optional int64 next_2; required double reward; required boolean done; required int64 episode (UINT_64); }";
    let mut properties =
        WriterProperties::builder().set_compression(compression).set_writer_version(version).set_dictionary_enabled(dictionary);
    if let Some(encoding) = encoding {
        properties = properties.set_column_encoding("episode".into(), encoding);
    }
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).expect("a file in memory");
    for episode in [0, 2] {
        let mut group = writer.next_row_group().expect("a row group");
        for i in 0..9 {
            let mut column = group.next_column().expect("a column").expect("nine columns");
            match i {
                0 | 6 => column.typed::<DoubleType>().write_batch(&[1.0, 2.0, 1.0], None, None),
                1 => column.typed::<DoubleType>().write_batch(&[1.0, 2.0, 1.0], Some(&[1, 1, 1]), None),
                2 | 3 => column.typed::<FloatType>().write_batch(&[1.0, 2.0, 1.0], None, None),
                4 => column.typed::<Int32Type>().write_batch(&[1, -2, 3], None, None),
                5 => column.typed::<Int64Type>().write_batch(&[1, -2, 3], Some(&[1, 1, 1]), None),
                7 => column.typed::<BoolType>().write_batch(&[false, false, true], None, None),
                _ => column.typed::<Int64Type>().write_batch(&[episode, episode, episode + 1], None, None),
            }
            .expect("three values");
            column.close().expect("a column");
        }
        group.close().expect("a row group");
    }
    writer.into_inner().expect("a file in memory")
}

/// A log of features.
fn feature_log() -> Vec<u8> {
    let names = ["phi_2", "phi_next_1", "reward", "done", "phi_1", "phi_next_2"];
    let columns = names.map(|name| (name.to_string(), TraceColumn::F64(vec![0.0, 1.0])));
    Trace::new(columns.into()).and_then(|table| trace::to_bytes(&table)).expect("a table of six columns")
}

fn parquet_corpora() -> Vec<Corpus> {
    let (v1, v2) = (WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0);
    let zstd = Compression::ZSTD(Default::default());
    vec![Corpus::bytes(vec![
        parquet_log(Compression::UNCOMPRESSED, v1, false, None),
        parquet_log(Compression::UNCOMPRESSED, v2, false, Some(Encoding::DELTA_BINARY_PACKED)),
        parquet_log(Compression::UNCOMPRESSED, v2, true, None),
        parquet_log(Compression::SNAPPY, v1, true, None),
        parquet_log(zstd, v1, false, None),
        feature_log(),
    ])]
}

fn read_parquet(data: &[u8]) -> Verdict {
    match read_log(data, logs::from_parquet) {
        Ok((log, _)) => {
            check_log(&log);
            Verdict::Accepted
        }
        Err(e) => refused(&e),
    }
}

// ---------------------------------------------------------------------------------------------
// Traces

/// `trace.parquet`.
pub const TRACE: Target =
    Target { name: "trace", about: "trace.parquet of a finished run", corpora: trace_corpora, run: read_trace, memory: expanding };

fn trace_corpora() -> Vec<Corpus> {
    let table = |rows: usize| {
        let numbers = || (0..rows).map(|i| i as f64 / 3.0);
        Trace::new(vec![
            ("method".into(), TraceColumn::Str((0..rows).map(|i| ["FedLSA", "SCAFFLSA"][i % 2].into()).collect())),
            ("round".into(), TraceColumn::I64((0..rows as i64).map(|i| i * i).collect())),
            ("mse".into(), TraceColumn::OptF64(numbers().map(|x| (x != 1.0).then_some(x)).collect())),
            ("residual".into(), TraceColumn::F64(numbers().collect())),
        ])
        .and_then(|table| trace::to_bytes(&table))
        .expect("a table of four columns")
    };
    vec![Corpus::bytes(vec![table(3), table(40), table(0)])]
}

fn read_trace(data: &[u8]) -> Verdict {
    let table = match trace::from_bytes(data.to_vec()) {
        Ok(table) => table,
        Err(e) => return refused(&e),
    };
    assert!(table.columns().iter().all(|(_, column)| column.len() == table.rows()));
    if let Ok(bytes) = trace::to_bytes(&table) {
        let again = trace::from_bytes(bytes).expect("what was just written");
        assert_eq!((again.rows(), again.columns().len()), (table.rows(), table.columns().len()));
    }
    Verdict::Accepted
}

/// Traces of delays.
pub const DELAYS: Target =
    Target { name: "delays", about: "traces of delays", corpora: delays_corpora, run: read_delays, memory: proportional };

fn delays_corpora() -> Vec<Corpus> {
    let seeds = ["0\n3\r\n1", "\u{feff}# measured\n1,0, 2\n\n4 5\t 6\n", "1000000\n0\n"];
    vec![Corpus::text(seeds, &["#", ",", " ", "\n", "1000001", "-1"])]
}

fn read_delays(data: &[u8]) -> Verdict {
    let rows = match delays::from_bytes(data) {
        Ok(rows) => rows,
        Err(e) => return refused(&e),
    };
    let mut text = String::new();
    for row in &rows {
        let taus = match row {
            Row::All(tau) => std::slice::from_ref(tau),
            Row::Each(taus) => taus,
        };
        assert!(!taus.is_empty() && taus.iter().all(|tau| *tau <= MAX_DELAY));
        text += &taus.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        text += "\n";
    }
    assert_eq!(delays::from_bytes(text.as_bytes()), Ok(rows));
    Verdict::Accepted
}

// ---------------------------------------------------------------------------------------------
// Starts

/// Starts in JSON, of which `weights.json` is one.
pub const JSON: Target =
    Target { name: "json", about: "theta_0 in JSON, weights.json", corpora: json_corpora, run: read_json, memory: proportional };

fn json_corpora() -> Vec<Corpus> {
    let weights = r#"{
  "format": 1,
  "features": ["1", "s_0"],
  "feature_map": {"kind": "polynomial", "order": 1},
  "ranges": {"s_0": [-1.2, 0.6]},
  "gamma": 0.99,
  "agents": [{"name": "agent_0", "transitions": 100}],
  "theta": [-3.25, 1e-3],
  "residual": null,
  "lstd": [-3.25, 0.5]
}
"#;
    let seeds = ["[0.5, 1, -2e3]", "{\"theta\": [1]}", weights];
    vec![Corpus::text(seeds, &["theta", "\"theta\"", "[", "]", "{", "}", "null", "true", ":", "1e999", "\\u0000", "\\ud800"])]
}

fn read_json(data: &[u8]) -> Verdict {
    match theta_from_json(data) {
        Ok(theta) => {
            assert!(theta.iter().all(|x| x.is_finite()));
            let text = format!("{theta:?}");
            assert_eq!(theta_from_json(text.as_bytes()), Ok(theta));
            Verdict::Accepted
        }
        Err(e) => refused(&e),
    }
}

/// `weights.json`.
pub const WEIGHTS: Target =
    Target { name: "weights", about: "weights.json of a fit", corpora: weights_corpora, run: read_weights, memory: features };

/// Memory of feature maps, of which a few bytes can ask for many features.
const fn features(len: usize) -> usize {
    (64 << 20) + 256 * len
}

fn weights_corpora() -> Vec<Corpus> {
    let seeds = [
        r#"{"format": 1, "feature_map": {"kind": "polynomial", "order": 1}, "columns": ["s_0"], "ranges": {"s_0": [-1.2, 0.6]},
            "theta": [-3.25, 1e-3], "residual": null}"#,
        r#"{"format": 1, "feature_map": {"kind": "identity", "bias": false}, "columns": ["phi_1", "phi_2"], "ranges": {}, "theta": [1, 2]}"#,
        r#"{"format": 1, "feature_map": {"kind": "fourier", "order": 1}, "columns": ["s_0", "s_1"],
            "ranges": {"s_0": [0, 1], "s_1": [0, 1]}, "theta": [1, 2, 3, 4]}"#,
        r#"{"format": 1, "feature_map": {"kind": "product", "factors": [{"features": {"kind": "one-hot"}, "columns": ["s_1"]},
            {"features": {"kind": "identity"}}]}, "columns": ["s_0", "s_1"], "ranges": {"s_1": [0, 1]}, "theta": [1, 2]}"#,
        r#"{"format": 1, "model": "logistic", "columns": null, "coefficients": [0.5, -2], "intercept": 0, "classes": [null, "a"],
            "target": "label", "target_map": null}"#,
        r#"{"format": 1, "model": "least-squares", "columns": ["a"], "coefficients": [0.5], "intercept": 1, "classes": null,
            "target": null, "target_map": [1926, 84]}"#,
    ];
    let words = ["\"identity\"", "\"order\"", "\"bias\"", "fourier", "[", "]", "{", "}", "null", "true", ":", "1e999", "0", "9", "\\u0000"];
    vec![Corpus::text(seeds, &words)]
}

fn read_weights(data: &[u8]) -> Verdict {
    let weights = match weights::from_json(data) {
        Ok(FittedModel::Value(weights)) => weights,
        Ok(FittedModel::Policy(policy)) => {
            let row = vec![0.25; policy.inputs().len()];
            let (values, law) = (policy.values(&row), policy.probabilities(&row, 0.5));
            assert_eq!((values.len(), law.len()), (policy.actions().len(), policy.actions().len()));
            return Verdict::Accepted;
        }
        Ok(FittedModel::Linear(model)) => {
            assert_eq!(LinearModel::from_json(&model.to_json()).expect("what was just written"), model);
            assert!(model.predictions(&[0.25]).iter().all(|(name, _)| !name.is_empty()));
            return Verdict::Accepted;
        }
        Err(e) => return refused(&e),
    };
    assert_eq!(weights.theta().len(), weights.map().len());
    let row = vec![0.25; weights.inputs().len()];
    assert_eq!(weights.apply(&row).len(), 1);
    Verdict::Accepted
}

// ---------------------------------------------------------------------------------------------
// Tables

/// The columns that are asked for of a table.
fn asked() -> TableForm {
    TableForm::new(["phi_1", "s_0"])
}

/// Tables in CSV.
pub const TABLE_CSV: Target =
    Target { name: "table-csv", about: "tables in CSV", corpora: table_csv_corpora, run: read_table_csv, memory: proportional };

fn table_csv_corpora() -> Vec<Corpus> {
    let seeds = ["s_0,phi_1\n0.5,1\n1,-2e3\n", "note,phi_1,s_0\r\n\"a, b\", 1.50,2\r\nc,-1e-300,0\r\n"];
    vec![Corpus::text(seeds, &["s_0", "phi_1", "value", "NaN", "inf", "1e400", "\"", "\"\"", ",", "\n"])]
}

fn read_table_csv(data: &[u8]) -> Verdict {
    match table::from_csv(data.to_vec(), &asked()) {
        Ok(table) => check_table(table),
        Err(e) => refused(&e),
    }
}

/// Tables in Parquet.
pub const TABLE_PARQUET: Target = Target {
    name: "table-parquet",
    about: "tables in Parquet",
    corpora: table_parquet_corpora,
    run: read_table_parquet,
    memory: expanding,
};

fn table_parquet_corpora() -> Vec<Corpus> {
    let table = Trace::new(vec![
        ("note".into(), TraceColumn::Str(["a", "b", "a"].map(String::from).into())),
        ("s_0".into(), TraceColumn::F64(vec![0.5, 1.0, -2e3])),
        ("count".into(), TraceColumn::I64(vec![1, 2, 3])),
        ("phi_1".into(), TraceColumn::F64(vec![0.5, 0.5, 0.5])),
    ]);
    vec![Corpus::bytes(vec![table.and_then(|table| trace::to_bytes(&table)).expect("a table of four columns")])]
}

fn read_table_parquet(data: &[u8]) -> Verdict {
    match table::from_parquet(data.to_vec(), &asked()) {
        Ok(table) => check_table(table),
        Err(e) => refused(&e),
    }
}

/// What was read is written with a column added, and read again.
fn check_table(table: Table) -> Verdict {
    let (rows, inputs) = (table.rows, table.inputs.clone());
    assert!(inputs.len() == 2 * rows && inputs.iter().all(|x| x.is_finite()));
    let columns = match table::stacked(vec![table], vec![("value".into(), Cells::Numbers(vec![0.5; rows]))]) {
        Ok(columns) => columns,
        Err(e) => return refused(&e),
    };
    match table::to_csv(&columns) {
        Ok(text) => assert_eq!(table::from_csv(text, &asked()).expect("what was just written").inputs, inputs),
        Err(e) => return refused(&e),
    }
    Verdict::Accepted
}

// ---------------------------------------------------------------------------------------------
// Names

/// Names of files: their order, and patterns.
pub const NAMES: Target =
    Target { name: "names", about: "names and patterns of files", corpora: names, run: read_names, memory: proportional };

fn names() -> Vec<Corpus> {
    let seeds =
        ["agent_2.csv\nagent_10.csv\nagent_010.csv\na", "logs/*.parquet\nlogs/agent_[0-9].csv\nlogs/agent_?.csv\nlogs", "a/b\né1\n01\n1\n"];
    vec![Corpus::text(seeds, &["*", "**", "?", "[", "]", "[!a]", "[a-", "0", "00", "/", "//", "./", "../", "\0"])]
}

fn read_names(data: &[u8]) -> Verdict {
    use std::cmp::Ordering;
    let text = String::from_utf8_lossy(data);
    let mut names: Vec<&str> = text.split('\n').take(40).collect();
    // An order of all names: sorting would panic otherwise.
    names.sort_by(|a, b| find::natural_order(a, b));
    for pair in names.windows(2) {
        assert_ne!(find::natural_order(pair[0], pair[1]), Ordering::Greater);
        assert_eq!(find::natural_order(pair[0], pair[1]), find::natural_order(pair[1], pair[0]).reverse());
        assert_eq!(find::natural_order(pair[0], pair[1]) == Ordering::Equal, pair[0] == pair[1]);
    }
    // In a folder that does not exist: what is meant is looked for, and not found.
    let base = std::path::PathBuf::from("target/fuzz/no/such/folder");
    let places = find::Places { base, data: Vec::new() };
    for name in names.iter().take(3) {
        let leaves = name.contains("..") || std::path::Path::new(name).has_root();
        if !leaves {
            match places.files(name, &logs::EXTENSIONS) {
                Ok(found) => assert!(found.is_empty(), "{found:?}"),
                Err(e) => drop(refused(&e)),
            }
        }
    }
    Verdict::Accepted
}
