"""A receiver on Django; SIGNOFF_WEBHOOK_SECRET and SIGNOFF_CALLBACK_URL say whose."""

import os
from concurrent.futures import ThreadPoolExecutor
from wsgiref.simple_server import make_server

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from examples.receivers.reviewer import Reviewer
from signoff import SignatureError

settings.configure(ALLOWED_HOSTS=["127.0.0.1", "localhost"], ROOT_URLCONF=__name__)
reviewer = Reviewer()
background = ThreadPoolExecutor()


@csrf_exempt
@require_POST
def hooks(request: HttpRequest) -> HttpResponse:
    """Takes one delivery; the signature stands in for a CSRF token, which no sender has."""
    try:
        event = reviewer.accept(request.body, request.headers)
    except SignatureError:
        return HttpResponse(status=401)
    if event is None:
        return HttpResponse(status=200)
    background.submit(reviewer.handle, event)
    return HttpResponse(status=202)


urlpatterns = [path("hooks", hooks)]
application = get_wsgi_application()

if __name__ == "__main__":
    port = int(os.environ.get("PORT", "9000"))
    make_server("127.0.0.1", port, application).serve_forever()
