//! NVMe/TCP beside iSCSI: the same volume of the same server.

use anyhow::Result;

use super::point::{self, Point, Protocol};
use super::rounds::{measure, side_by_side};
use super::server::{Ours, side};
use super::{Plan, instructions, page};
use crate::servers::Backend;
use crate::workspace;

/// Measures all points; how many there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let points = plan.chosen(point::protocols(plan.quick));
    if points.is_empty() {
        return Ok(0);
    }
    let program = workspace::server_program()?;
    let ours = |backend| Ours {
        program: &program,
        backend,
        engine: &plan.engine,
        nvme: true,
        wrapper: &[],
        folder: "longshore",
    };
    let mut rows = Vec::new();
    for backend in [Backend::Null, Backend::Memory, Backend::File] {
        let mut points = points.iter().filter(|p| p.backend == backend).peekable();
        if points.peek().is_none() {
            continue;
        }
        let server = ours(backend).start(plan)?;
        let nvme = side("NVMe", &server, Protocol::Nvme);
        let iscsi = side("iSCSI", &server, Protocol::Iscsi);
        for &point in points {
            rows.push(measure(plan, point, [&nvme, &iscsi])?);
        }
    }
    let mut text = page::conditions(plan, &[])?;
    text += &side_by_side(&rows, "NVMe", "iSCSI");
    if !plan.quick {
        let over = |point: Point, protocol| (point.over(protocol), ours(point.backend));
        let points = plan.chosen(point::counted(Protocol::Nvme, plan.quick));
        text += &instructions::table(plan, &points, ["NVMe", "iSCSI"], |point| {
            [Protocol::Nvme, Protocol::Iscsi].map(|protocol| over(point, protocol))
        })?;
    }
    plan.publish("NVMe beside iSCSI", &text)?;
    Ok(rows.len())
}
