# An image of `lately serve`: docs/guide/install.md.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
# glibc, libgcc and certificates; no shell. Its user nonroot is 65532.
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package lately-cli --features kafka \
    && install -D --strip target/release/lately /image/lately \
    && install -d /image/data

FROM ${BASE_IMAGE}
COPY --from=build /image/lately /usr/bin/lately
COPY --from=build --chown=65532:65532 /image/data /var/lib/lately
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/lately/
# The counts are in a folder below the volume, which the server makes for itself alone.
USER 65532:65532
VOLUME /var/lib/lately
EXPOSE 7379 7380 9180
ENV LATELY_HTTP=127.0.0.1:9180
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["/usr/bin/lately", "health"]
ENTRYPOINT ["/usr/bin/lately", "serve", "--data", "/var/lib/lately/data", "--metrics", "0.0.0.0:9180"]
