# One image, three commands: signoff serve | worker | relay.
# Own tools: FROM this image, COPY the modules to /app, set SIGNOFF_TOOLS.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/signoff \
    && /opt/signoff/bin/pip install --no-cache-dir --disable-pip-version-check \
        -c constraints.txt '.[server,mcp,models]'

FROM python:3.11-slim-bookworm
RUN groupadd --system --gid 10001 signoff \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin signoff
COPY --from=build /opt/signoff /opt/signoff
ENV PATH=/opt/signoff/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["signoff"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
