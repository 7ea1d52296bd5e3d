# Tritonworthy on a GPU host: docker run --gpus all -p 127.0.0.1:8000:8000 -e TRITONWORTHY_TOKEN=... -v data:/data IMAGE
FROM nvidia/cuda:13.0.2-runtime-ubuntu24.04

# Triton compiles a launcher for each kernel with the C compiler and Python's headers.
RUN apt-get update -q \
 && apt-get install -y -q --no-install-recommends python3 python3-venv python3-dev gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY profiler profiler
COPY kernels kernels
COPY app app
COPY tritonworthy tritonworthy
COPY templates templates
COPY static static

RUN python3 -m venv /opt/tritonworthy \
 && /opt/tritonworthy/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt --editable '.[server]'

RUN useradd --system --create-home --uid 10001 tritonworthy \
 && install -d -o tritonworthy -g tritonworthy /data

ENV PATH=/opt/tritonworthy/bin:$PATH
ENV TRITONWORTHY_DATA_DIR=/data
ENV TRITONWORTHY_HOST=0.0.0.0
ENV TRITONWORTHY_PORT=8000
USER tritonworthy
VOLUME /data
EXPOSE 8000

# A token is required for any address but loopback: without TRITONWORTHY_TOKEN the server refuses to start.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD python3 -c "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"TRITONWORTHY_PORT\"]}/healthz', timeout=4)"

CMD ["tritonworthy", "serve"]
