//! A plot with two logarithmic axes, as SVG, without any dependency.

use std::fmt::Write;

/// Points of one colour.
pub struct Series {
    /// Its name.
    pub name: String,
    /// Points, x ascending, all above 0.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 4] = ["#0b6e99", "#c4412b", "#4d7c0f", "#7c3aed"];

/// The whole picture.
pub fn log_log(title: &str, x: &str, y: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|s| &s.points);
    let xs = decades(all().map(|p| p.0));
    let ys = decades(all().map(|p| p.1));
    let at = |v: f64, (from, to): (i32, i32), low: f64, high: f64| {
        low + (v.log10() - f64::from(from)) / f64::from(to - from) * (high - low)
    };
    let px = |v: f64| at(v, xs, LEFT, WIDTH - RIGHT);
    let py = |v: f64| at(v, ys, HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut text = |x: f64, y: f64, anchor: &str, t: &str| {
        let _ =
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(t));
    };
    text(WIDTH / 2.0, 22.0, "middle", title);
    text(WIDTH / 2.0, HEIGHT - 12.0, "middle", x);
    text(8.0, TOP - 12.0, "start", y);
    for n in xs.0..=xs.1 {
        text(px(10f64.powi(n)), HEIGHT - BOTTOM + 18.0, "middle", &power(n));
    }
    for n in ys.0..=ys.1 {
        text(LEFT - 6.0, py(10f64.powi(n)) + 4.0, "end", &power(n));
    }
    for (n, s) in series.iter().enumerate() {
        text(LEFT + 28.0, TOP + 18.0 + 16.0 * n as f64, "start", &s.name);
    }
    for n in xs.0..=xs.1 {
        let x = px(10f64.powi(n));
        let _ = writeln!(svg, "<path d=\"M{x:.1} {TOP}V{}\" stroke=\"#ddd\"/>", HEIGHT - BOTTOM);
    }
    for n in ys.0..=ys.1 {
        let y = py(10f64.powi(n));
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT);
    }
    for (n, s) in series.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let line: Vec<_> = s.points.iter().map(|p| format!("{:.1},{:.1}", px(p.0), py(p.1))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for p in &s.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                px(p.0),
                py(p.1)
            );
        }
        let y = TOP + 14.0 + 16.0 * n as f64;
        let _ = writeln!(svg, "<path d=\"M{} {y}h20\" stroke=\"{colour}\" stroke-width=\"2\"/>", LEFT + 4.0);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The powers of ten around all values.
fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let logs: Vec<f64> = values.filter(|v| *v > 0.0).map(f64::log10).collect();
    let from = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let to = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
    match from.is_finite() && to.is_finite() {
        true => (from as i32, (to as i32).max(from as i32 + 1)),
        false => (0, 1),
    }
}

fn power(n: i32) -> String {
    match n {
        0.. => format!("{}", 10u64.pow(n.unsigned_abs())),
        _ => format!("{}", 10f64.powi(n)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_inside_of_the_picture() {
        let points = vec![(10.0, 0.5), (100_000.0, 4321.0)];
        let svg = log_log("t", "x", "y", &[Series { name: "a < b".into(), points }]);
        for at in svg.split("cx=\"").skip(1) {
            let x: f64 = at.split('"').next().and_then(|x| x.parse().ok()).unwrap();
            assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{x}");
        }
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
