"""What runs wrote down while they trained, as curves."""

from collections.abc import Iterable

from prime_bench.report.figures.inputs import Curve, LoadCurve
from prime_bench.report.quantities.design import backbone_label
from prime_bench.store.record import RunRecord


def validation_curve(run: RunRecord, *, arm: str) -> Curve:
    """The run's validation AUC; `arm` is its printed name."""
    return Curve(
        arm=arm,
        seed=run.job.seed,
        epochs=tuple(point.epoch for point in run.history),
        values=tuple(
            float("nan") if point.valid_auc is None else point.valid_auc for point in run.history
        ),
        best_epoch=run.result.best_epoch,
    )


def load_curves(runs: Iterable[RunRecord]) -> list[LoadCurve]:
    """The routers' curves of the runs that have any."""
    curves = []
    for run in runs:
        points = [(point.epoch, point.routing) for point in run.history if point.routing]
        n_experts = run.job.plugin_settings.get("experts_per_bag")
        if points and n_experts:
            curves.append(
                LoadCurve(
                    backbone=backbone_label(run.job.backbone),
                    seed=run.job.seed,
                    epochs=tuple(epoch for epoch, _ in points),
                    largest_load=tuple(tuple(routing.largest_load) for _, routing in points),
                    n_experts=n_experts,
                )
            )
    return curves
