# The image of danm-cleaner: one static program, no shell, not root.
#
#   docker build -t danm-cleaner .                      compiles in the image
#   docker build --target prebuilt -t danm-cleaner .    takes bin/danm-cleaner (make build)
#
# The second comes first, because a builder without BuildKit builds every stage
# up to its target, and should not need the Go image for it.

FROM scratch AS prebuilt
COPY bin/danm-cleaner /danm-cleaner
USER 65532:65532
ENTRYPOINT ["/danm-cleaner"]

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
