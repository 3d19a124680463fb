"""`python -m tests.model [--large]`: checks the model of the lease protocol and prints what each search saw."""

import argparse

from tests.model.checks import FLEETS, LARGE, REMOVED
from tests.support.spin import CannotCheck, Found, check


def main() -> int:
    """0 if every fleet holds and every removed rule is missed, else 1."""
    parser = argparse.ArgumentParser(prog="make model", description="Check the model of the lease protocol with Spin.")
    parser.add_argument("--large", action="store_true", help="larger fleets, some minutes each")
    parser.add_argument("--story", metavar="RULE", help="show how a property breaks without this rule")
    asked = parser.parse_args()
    try:
        if asked.story:
            return _tell(asked.story)
        fleets = LARGE if asked.large else FLEETS
        good = [_fleet(fleet.name, check(fleet.switches, fleet.search, optimise=True)) for fleet in fleets]
        if not asked.large:
            for rule in REMOVED:
                found = check({**rule.where, rule.rule: rule.value}, rule.search)
                good.append(found.broken == rule.breaks)
                print(
                    f"without {rule.rule}: {found.broken or 'nothing breaks'} after {len(found.story)} steps",
                    flush=True,
                )
    except CannotCheck as fault:
        print(fault)
        return 1
    return 0 if all(good) else 1


def _fleet(name: str, found: Found) -> bool:
    told = "holds" if found.broken is None else f"{found.broken} BREAKS"
    print(f"{name}: {told}, {found.states:,} states, {found.seconds:.0f} s", flush=True)
    print("\n".join(f"    {step}" for step in found.story), end="\n" if found.story else "")
    return found.broken is None


def _tell(rule: str) -> int:
    for removed in REMOVED:
        if removed.rule == rule:
            search = "shortest" if removed.search == "deep" else removed.search
            found = check({**removed.where, removed.rule: removed.value}, search)
            print("\n".join((*found.story, f"{found.broken} is broken")))
            return 0
    print(f"There is no rule {rule}: take one of {', '.join(removed.rule for removed in REMOVED)}.")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
