"""The warm pool's size against its rivals, on made-up and on real demand."""
