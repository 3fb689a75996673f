# A static binary in an empty image. The demo model is inside it; a model of
# your own is mounted:
#
#   docker build -t forebay .
#   docker run -p 8080:8080 forebay
#   docker run -p 8080:8080 -v "$PWD/models:/models:ro" forebay --model /models/NAME.gguf
#
# or downloaded, into a volume that keeps it:
#
#   docker run -p 8080:8080 -v forebay-models:/cache forebay --model hf:OWNER/REPO
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=0.1.0-dev
RUN CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags "-s -w -X github.com/forebay-io/forebay/cli.version=${VERSION}" -o /forebay .
RUN mkdir -m 1777 /scratch && mkdir /cache

FROM scratch
COPY --from=build /forebay /forebay
COPY --from=build /scratch /tmp
COPY --from=build --chown=65532:65532 /cache /cache
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
USER 65532:65532
ENV FOREBAY_LISTEN=0.0.0.0:8080 HF_HUB_CACHE=/cache
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["/forebay", "health"]
ENTRYPOINT ["/forebay"]
