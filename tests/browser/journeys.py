"""What every journey does between two steps."""


def settle(page):
    """Until nothing is being computed any more."""
    page.wait_for_timeout(400)
    page.locator('[data-testid="stStatusWidget"]').wait_for(state="detached", timeout=120_000)
    page.wait_for_timeout(200)
