import asyncio

from exburn.serving import Server


def test_the_hosts_lifespan_sends_canaries_and_closes_the_models(model):
    server = Server({"m": model}, batch_size=1)
    entry = server._registry.get("m")

    async def run():
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent, ready = [], []

        async def receive():
            if len(messages) == 1:
                ready.append(server._health.all_ready())
            return messages.pop(0)

        async def send(message):
            sent.append(message["type"])

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await server.asgi()(scope, receive, send)
        return sent, ready

    sent, ready = asyncio.run(run())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert ready == [True]
    assert entry.serving.closed and not server._health.all_ready()
