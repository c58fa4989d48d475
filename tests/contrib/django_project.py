"""Settings of Django for tests; import this module before Django's models, views and test client."""

from __future__ import annotations

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="s",  # noqa: S106 - none
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    )
    django.setup()
