"""All pictures of what a run tunes: values of its agents, belief or probabilities, who continued from whom, events."""

from oht.report.agent_pictures import agent_figure, episode_figure, event_figure
from oht.report.figure_parts import Figure, duration
from oht.report.histories import history_of
from oht.report.rundata import RunData
from oht.report.schedules import agent_numbers, discrete_values, names
from oht.report.value_pictures import belief_figure, probability_figure, share_figure, value_figure, weights_figure


def tuning(run: RunData) -> list[Figure]:
    """Everything that shows how a run's agents and their values developed, for every method."""
    history = history_of(run)
    if not history.schedule:
        return [event_figure(history)] if history.events else []
    figures = [value_figure(history, name) for name in history.tuned]
    if agent_numbers(history.schedule):
        figures += [belief_figure(history), share_figure(history)]
    discrete = [name for name in names(history.schedule) if discrete_values(history.schedule, name)]
    figures += [probability_figure(history, name) for name in discrete]
    if {"weights/sigma", "weights/damp"} <= history.schedule.keys():
        figures.append(weights_figure(history))
    alone = len(set(history.episodes.agent.tolist())) == 1
    figures.append(episode_figure(history) if alone else agent_figure(history))
    return [*figures, event_figure(history)] if history.events else figures


def tuning_note(run: RunData) -> str:
    """A sentence on what the run tunes and how far it has come."""
    tune = dict(run.config.get("tune", {}))
    words = f"{run.method} tunes {' and '.join(tune)}." if tune else FIXED.get(run.method, "")
    words = f"{words} {run.env_steps:,} of {run.steps:,} env steps in {duration(run.wall_time)}".lstrip()
    words += f", {run.cost:.2f} gradient steps of all agents for each env step." if run.cost else "."
    return words + (f" {run.reason}" if run.reason else "")


FIXED = {
    "static": "static keeps its hyper-parameters as they are.",
    "schedule": "schedule replays the values of another run.",
    "cem-rl": "cem-rl evolves the actor's weights; its hyper-parameters stay as they are.",
    "oht": "oht races a portfolio of values.",
    "random": "random trains a portfolio of values; their returns decide nothing.",
}
