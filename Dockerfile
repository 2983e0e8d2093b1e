# The images of danm-cleaner and of danm-chaos: one static program each, no shell,
# not root.
#
#   docker build -t danm-cleaner .                      compiles in the image
#   docker build --target prebuilt -t danm-cleaner .    takes bin/danm-cleaner (make build)
#   docker build --target danm-chaos -t danm-chaos .    takes bin/danm-chaos, for the pods of a fleet
#
# What takes built programs comes first, because a builder without BuildKit builds
# every stage up to its target, and should not need the Go image for it.

FROM scratch AS prebuilt
COPY bin/danm-cleaner /danm-cleaner
USER 65532:65532
ENTRYPOINT ["/danm-cleaner"]

FROM scratch AS danm-chaos
COPY bin/danm-chaos /danm-chaos
USER 65532:65532
ENTRYPOINT ["/danm-chaos"]

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cleaner cleaner
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /danm-cleaner ./cleaner/cmd/danm-cleaner

FROM scratch
COPY --from=build /danm-cleaner /danm-cleaner
USER 65532:65532
ENTRYPOINT ["/danm-cleaner"]
