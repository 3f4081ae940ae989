"""Tasks of the site."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task(queue_name="emails", priority=20)
def send(to: str, body: str) -> int:
    return len(f"to: {to}\n{body}")


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task(takes_context=True)
def attempts(context) -> int:
    return context.attempt
