"""The conformance suite of the robot protocol: every row of it, played against a gateway or against a robot.

`gateway_rows.GATEWAY_ROWS` need a gateway's address (`scene.GatewayUnderTest`); `robot_rows.ROBOT_ROWS` need a way to
start a robot (`programs.Program` runs any command). `playing` plays rows and says what came of each.
"""
