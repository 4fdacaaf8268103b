# The driver's image for those who build with a container engine. `make image` makes a smaller one that is reproducible, see
# docs/guides/images.md. A test holds the packages to those of `make image`.
# To pin the images of others, give their digests: --build-arg GO_IMAGE=golang@sha256:… --build-arg DEBIAN_IMAGE=debian@sha256:…
ARG GO_IMAGE=golang:1.26-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim
FROM --platform=$BUILDPLATFORM $GO_IMAGE AS build
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /source
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/azuredisk-csi/azuredisk/internal/version.Version=$VERSION" -o /azuredisk ./cmd/azuredisk

FROM $DEBIAN_IMAGE
RUN apt-get update && \
    apt-get install -y --no-install-recommends base-files btrfs-progs ca-certificates dash e2fsprogs libgcc-s1 mount util-linux xfsprogs && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /azuredisk /azuredisk
# The chart runs the node plug-in as root.
USER 65532:65532
ENTRYPOINT ["/azuredisk"]
