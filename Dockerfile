# One image for every role; without arguments the all-in-one node, with its data in the volume /data.

FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/build.txt requirements/server.txt requirements/
RUN python -m venv tools \
 && tools/bin/python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/build.txt \
 && python -m venv --without-pip /opt/tocsin \
 && tools/bin/uv pip install --no-cache --python /opt/tocsin/bin/python --compile-bytecode \
        --require-hashes -r requirements/server.txt
# Below the dependencies, so that a change of the code installs nothing but the code.
COPY pyproject.toml README.md LICENSE ./
COPY tocsin tocsin
RUN tools/bin/python -m hatchling build --target wheel \
 && tools/bin/uv pip install --no-cache --python /opt/tocsin/bin/python --compile-bytecode --no-deps dist/*.whl

FROM python:3.13-slim
RUN useradd --uid 10001 --user-group --no-create-home tocsin \
 && install --directory --owner=tocsin --group=tocsin /data
COPY --from=build /opt/tocsin /opt/tocsin
ENV PATH=/opt/tocsin/bin:$PATH PYTHONUNBUFFERED=1
USER tocsin
WORKDIR /data
VOLUME /data
EXPOSE 8787
# Beyond loopback the API wants a key: docker run -e TOCSIN_API_KEY=...
ENTRYPOINT ["tocsin"]
CMD ["up", "--data", "/data", "--host", "0.0.0.0"]
