//! NVMe/TCP beside iSCSI: the same volume of the same server.

use std::path::Path;

use anyhow::Result;

use super::point::{self, Point, Protocol};
use super::rounds::{Row, measure, side_by_side, user_and_kernel};
use super::server::{Ours, side};
use super::{Plan, instructions, page};
use crate::servers::Backend;
use crate::workspace;

/// Measures all points; how many there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let rows = rows(plan)?;
    if rows.is_empty() {
        return Ok(0);
    }
    let mut text = page::conditions(plan, &[])?;
    text += &side_by_side(&rows, "NVMe", "iSCSI");
    if !plan.quick {
        let program = workspace::server_program()?;
        let over =
            |point: Point, protocol| (point.over(protocol), ours(plan, &program, point.backend));
        let points = plan.chosen(point::counted(Protocol::Nvme, plan.quick));
        text += &instructions::table(plan, &points, ["NVMe", "iSCSI"], |point| {
            [Protocol::Nvme, Protocol::Iscsi].map(|protocol| over(point, protocol))
        })?;
    }
    plan.publish("NVMe beside iSCSI", &text)?;
    publish_parts(plan, &rows)?;
    Ok(rows.len())
}

/// The same points, for where the server's processor time goes; how many there were.
pub fn parts(plan: &Plan) -> Result<usize> {
    let rows = rows(plan)?;
    publish_parts(plan, &rows)?;
    Ok(rows.len())
}

fn publish_parts(plan: &Plan, rows: &[Row]) -> Result<()> {
    let mhz = page::clock_mhz();
    let clock = mhz.map_or("not known here".to_owned(), |mhz| {
        format!("{mhz:.0} MHz, the clock in /proc/cpuinfo, times processor time")
    });
    let mut text = page::conditions(plan, &[("cycles", clock)])?;
    text += &user_and_kernel(rows, mhz, "NVMe", "iSCSI");
    plan.publish("server and kernel", &text)
}

fn rows(plan: &Plan) -> Result<Vec<Row>> {
    let points = plan.chosen(point::protocols(plan.quick));
    let program = workspace::server_program()?;
    let mut rows = Vec::new();
    for backend in [Backend::Null, Backend::Memory, Backend::File] {
        let mut points = points.iter().filter(|p| p.backend == backend).peekable();
        if points.peek().is_none() {
            continue;
        }
        let server = ours(plan, &program, backend).start(plan)?;
        let nvme = side("NVMe", &server, Protocol::Nvme);
        let iscsi = side("iSCSI", &server, Protocol::Iscsi);
        for &point in points {
            rows.push(measure(plan, point, [&nvme, &iscsi])?);
        }
    }
    Ok(rows)
}

fn ours<'a>(plan: &'a Plan, program: &'a Path, backend: Backend) -> Ours<'a> {
    Ours {
        program,
        backend,
        engine: &plan.engine,
        nvme: true,
        wrapper: &[],
        options: &[],
        folder: "longshore",
    }
}
